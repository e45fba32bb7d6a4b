#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"

namespace ridgeline::cpu::simd {

// Cross-entropy with class and sample weights and label smoothing of x[n, classes], batch-major, as
// SoftmaxXent of ops/loss.h defines it, or its gradient.
template <typename T>
struct WeightedXentArgs {
  const T* x;
  const int32_t* label;     // [n], each in [0, classes)
  const T* weights;         // [classes]
  const T* sample_weights;  // of each `timesteps` rows; null: all rows have the weight 1
  int64_t timesteps;
  int64_t n, classes;
  T smoothing;
  T total;  // of the weights
  // Sums over each group of kGroup rows, not scaled; null if not wanted.
  double* loss;      // [groups_of(n)]
  int32_t* correct;  // [groups_of(n)]
  // dx = factor * (softmax(x) * sum of targets - target); null if not wanted.
  T* dx;
  T factor;
};

template <typename T>
struct WeightedXentFunctions {
  void (*run)(const WeightedXentArgs<T>&, Range groups);
};

template <typename T>
const WeightedXentFunctions<T>& weighted_xent_functions();

}  // namespace ridgeline::cpu::simd
