#pragma once

#include <memory>

#include "ridgeline/data/image_set.h"
#include "ridgeline/engine/ladder.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/runner.h"

// What a rung is measured by; for ladder*.cpp alone.
namespace ridgeline::engine {

struct RungWork {
  const Rung& rung;
  const Config& config;
  Machine& machine;
  const std::shared_ptr<const data::DataSet>& set;
  double seconds;
};

// Compare with the reference rows (throws numeric when it is wrong), then fill in times and rows:
// of training steps, or of the way from bytes on the device to probabilities.
void measure_training(const RungWork& work, RungResult& result);
void measure_forward(const RungWork& work, RungResult& result);

double unit_roundoff(Precision precision);
void fill_times(double us_per_step, Runner& runner, Machine& machine, RungResult& result);

}  // namespace ridgeline::engine
