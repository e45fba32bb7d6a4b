#pragma once

#include <cstdint>
#include <limits>

namespace ridgeline::engine {

// Mean loss and accuracy over some steps.
struct Tally {
  double loss = 0;
  int64_t correct = 0, targets = 0;
  bool counted = false;  // whether steps count correct targets

  void add(double step_loss, int64_t step_targets) {
    loss += step_loss * double(step_targets);
    targets += step_targets;
  }
  void add(double step_loss, int64_t step_targets, int64_t step_correct) {
    add(step_loss, step_targets);
    correct += step_correct;
    counted = true;
  }
  double mean_loss() const { return targets > 0 ? loss / double(targets) : 0; }
  // NaN if the targets are values, which have no accuracy.
  double accuracy() const {
    if (targets == 0) return 0;
    return counted ? double(correct) / double(targets) : std::numeric_limits<double>::quiet_NaN();
  }
};

}  // namespace ridgeline::engine
