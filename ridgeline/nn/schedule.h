#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ridgeline/nn/config_table.h"

namespace ridgeline::nn {

enum class ScheduleKind { constant, step, cosine };

// A length of training, counted in optimizer steps or in epochs.
struct TrainLength {
  int64_t count = 0;
  bool epochs = false;

  bool operator==(const TrainLength&) const = default;
};

// A warm-up, followed by the schedule proper, which begins with its own step 0 when the warm-up
// ends: torch's SequentialLR of LinearLR(start_factor=1/w, total_iters=w-1) and the schedule, with
// the milestone w = warmup_steps.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  int64_t warmup_steps = 0;    // for all kinds: lr rises linearly and is full at this step
  TrainLength every{1, true};  // step: the interval after which lr is multiplied by `factor`
  double factor = 0.1;         // step
  TrainLength total;           // cosine: its end, warm-up included; 0: the end of the run
  double min_factor = 0;       // cosine: the factor at the end and after it

  bool operator==(const Schedule&) const = default;
};

struct RunLength {
  int64_t steps_per_epoch = 1;
  int64_t total_steps = 1;  // the most steps of the run, by its epochs and by max_steps
};

std::string_view name(ScheduleKind kind);

// Throws Error(usage) if the cosine would end before its warm-up does. A run that itself ends
// earlier never reaches the cosine, which is no error.
void check(const Schedule& schedule, const RunLength& run);

// Returns the learning rate of step `step` (the first is 0). A pure function, so that a resumed run
// gets the same. `base` is the optimizer's lr.
double lr(const Schedule& schedule, double base, int64_t step, const RunLength& run);

Schedule read_schedule(ConfigTable& parent, const std::string& key);
std::string to_toml(const Schedule& schedule);  // { type = "cosine", warmup_steps = 100, ... }

}  // namespace ridgeline::nn
