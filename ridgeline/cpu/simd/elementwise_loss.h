#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"
#include "ridgeline/ops/loss.h"

namespace ridgeline::cpu::simd {

// The functions of ElementwiseLoss, and that of Mse.
enum class ElementFn : uint8_t { mae, huber, bce_with_logits, quantile, squared_error };

constexpr ElementFn element_fn(LossFn fn) {
  switch (fn) {
    case LossFn::huber:
      return ElementFn::huber;
    case LossFn::bce_with_logits:
      return ElementFn::bce_with_logits;
    case LossFn::quantile:
      return ElementFn::quantile;
    default:
      return ElementFn::mae;
  }
}

// ElementwiseLoss or Mse of x[n, out] and its gradient, batch-major. Targets are numbers, each
// shared by out / columns neighbours in x, or labels that stand for one-hot rows.
template <typename T>
struct ElementwiseLossArgs {
  ElementFn fn;
  const T* x;
  const T* target;          // [n, columns]; null with labels
  const int32_t* label;     // [n]; null with numbers
  const T* weights;         // [out], for bce_with_logits and quantile
  const T* sample_weights;  // of each `timesteps` rows; null: all rows have the weight 1
  int64_t timesteps;
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
