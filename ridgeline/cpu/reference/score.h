#pragma once

#include <algorithm>

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu {

// The two results of a loss op: loss[tick] and, if wanted, correct[tick].
struct Score {
  Tensor tick, loss, correct;

  template <typename T>
  Score(const Binding& binding, const T& op)
      : tick(binding.read(op.tick)),
        loss(binding.write(op.loss)),
        correct(binding.write(op.correct)) {}

  void write(double value, int32_t hits) const {
    const int32_t at = *tick.as<int32_t>();
    loss.as<double>()[at] = value;
    if (correct.data != nullptr) correct.as<int32_t>()[at] = hits;
  }
};

inline int64_t first_largest(const double* x, int64_t count) {
  return std::max_element(x, x + count) - x;
}

}  // namespace ridgeline::cpu
