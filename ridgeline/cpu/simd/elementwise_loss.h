#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"
#include "ridgeline/ops/loss.h"

namespace ridgeline::cpu::simd {

// ElementwiseLoss of x[n, out] and its gradient, batch-major. Targets are numbers, each shared by
// out / columns neighbours in x, or labels that stand for one-hot rows.
template <typename T>
struct ElementwiseLossArgs {
  LossFn fn;
  const T* x;
  const T* target;       // [n, columns]; null with labels
  const int32_t* label;  // [n]; null with numbers
  const T* weights;      // [out]
  int64_t n, out, columns;
  T delta;
  // Sums over each group of kGroup rows, not scaled; null if not wanted.
  double* loss;      // [groups_of(n)]
  int32_t* correct;  // [groups_of(n)]: samples whose largest x is first reached at the label
  // dx = factor * the derivative by x; null if not wanted.
  T* dx;
  T factor;
};

template <typename T>
struct ElementwiseLossFunctions {
  void (*run)(const ElementwiseLossArgs<T>&, Range groups);
};

template <typename T>
const ElementwiseLossFunctions<T>& elementwise_loss_functions();

}  // namespace ridgeline::cpu::simd
