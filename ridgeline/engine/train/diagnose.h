#pragma once

#include <string>

#include "ridgeline/engine/train/trainer.h"

namespace ridgeline::engine {

// Where a loss that is not finite came from.
struct Diagnosis {
  int64_t step = 0;  // counted from 1, the step whose loss it was
  double loss = 0;
  // "layer 2 (relu)", "the gradient of layer 0 (linear)"; "" when the reference kernels make
  // neither a NaN nor an infinity of the same weights, so that a kernel of the plan may be at
  // fault.
  std::string where;
};

// Runs again from a good snapshot (taken after `step` steps) up to `end` at most, to the first loss
// that is not finite, then makes that step and the one before with reference kernels, op by op, to
// see which op was the first to write a NaN or an infinity. The trainer is left wherever that was.
Diagnosis diagnose(Trainer& trainer, const Snapshot& snapshot, int64_t step, int64_t end);

}  // namespace ridgeline::engine
