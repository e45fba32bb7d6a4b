#pragma once

#include <optional>
#include <vector>

#include "ridgeline/core/device_trace.h"

namespace ridgeline::engine {

// What rows take inside whole launches of a plan, where they follow one another as in a run.
struct ReplayTimes {
  std::vector<std::vector<double>> rows;  // [row][step], seconds
};

// `alone` has what one pass over each row launches, `replay` whole launches of several steps. A
// kernel of the replay belongs to the row that launches its like: the k-th of that name and size in
// a step to the k-th row that has one. Where several run at a time they share it equally, so the
// rows' times add up to the time in which anything of theirs ran. None when the replay is not made
// of such steps.
std::optional<ReplayTimes> times_in_replay(const std::vector<DeviceTrace>& alone,
                                           const DeviceTrace& replay);

}  // namespace ridgeline::engine
