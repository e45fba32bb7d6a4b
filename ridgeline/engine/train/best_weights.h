#pragma once

#include <cstdint>

#include "ridgeline/engine/evaluation.h"
#include "ridgeline/engine/weights.h"

namespace ridgeline::engine {

// The best evaluation of the validation set so far. Only evaluations that eval_every schedules
// count, so that a run made in parts chooses like one made in one go.
struct BestWeights {
  int64_t step = -1;   // after which it was made; -1: there was none
  double value = 0;    // of train.monitor
  int64_t waited = 0;  // evaluations since then
  Snapshot weights;    // of that step, without the optimizer's state; empty unless kept

  // Whether a value of this metric is better than the best. NaN and infinity never are.
  bool is_beaten_by(double now, Metric metric) const {
    if (!std::isfinite(now)) return false;
    return step < 0 || (larger_is_better(metric) ? now > value : now < value);
  }
};

}  // namespace ridgeline::engine
