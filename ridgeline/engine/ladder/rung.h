#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/ladder/ladder.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/runner.h"

// The measurements of a rung; used in this folder only.
namespace ridgeline::engine {

// The reference kernels' weights before and after a few steps, flattened.
struct ReferenceSteps {
  std::vector<double> start, after;
};

struct RungWork {
  const Rung& rung;
  const Config& config;
  Machine& machine;
  const std::shared_ptr<const data::DataSet>& set;
  double seconds;
  // By batch and precision: rungs of a ladder share them, because plain loops are slow.
  std::map<std::string, ReferenceSteps>& references;

  // Null if this process is alone.
  Communicator* ranks() const {
    Communicator* all = machine.ranks();
    return all != nullptr && all->size() > 1 ? all : nullptr;
  }
  // Ranks repeat work as often as their root does.
  bool agreed(bool mine) const { return ranks() != nullptr ? ranks()->from_root(mine) : mine; }
};

// These compare with the reference kernels (and throw Error(numeric) if the rung is wrong), then
// fill in times and kernels: of training steps, or of inference from bytes on the device to
// probabilities.
void measure_training(const RungWork& work, RungResult& result);
void measure_forward(const RungWork& work, RungResult& result);

double unit_roundoff(Precision precision);
void fill_times(double us_per_step, Runner& runner, Machine& machine, RungResult& result);

}  // namespace ridgeline::engine
