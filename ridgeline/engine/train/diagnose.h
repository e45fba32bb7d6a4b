#pragma once

#include <optional>
#include <string>

#include "ridgeline/engine/train/trainer.h"

namespace ridgeline::engine {

// The origin of a loss that is not finite.
struct Diagnosis {
  int64_t step = 0;            // counted from 1, the step with that loss
  std::optional<double> loss;  // of that step; none if all losses are finite
  // "layer 2 (relu)", "the gradient of layer 0 (linear)"; "" if the reference kernels produce
  // neither NaN nor infinity from the same weights, so that a kernel of the plan may be
  // wrong.
  std::string where;
};

// Repeats the run from a good snapshot (taken after `step` steps) up to `end` at most, to the first
// loss that is not finite, then makes that step and the one before with reference kernels, op by
// op, to find the first op that writes a NaN or an infinity. The trainer stays at that step.
Diagnosis diagnose(Trainer& trainer, const Snapshot& snapshot, int64_t step, int64_t end);

}  // namespace ridgeline::engine
