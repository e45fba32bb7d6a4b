#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"
#include "ridgeline/ops/loss.h"

namespace ridgeline::cpu::simd {

// The loss of a whole-step kernel.
struct MlpLoss {
  enum class Kind : uint8_t { softmax_xent, mse, elementwise };
  Kind kind = Kind::softmax_xent;
  int64_t columns = 0;  // values per target; 0: a label
  // The following are for ElementwiseLoss.
  LossFn fn = LossFn::mae;
  double delta = 1;
  const double* weights = nullptr;
  int64_t weight_count = 0;

  bool has_labels() const { return columns == 0; }
};

// A loss and its gradient for a chunk of samples whose outputs are panels [n, out].
template <typename T>
struct MlpLossArgs {
  const T* x;            // panels
  const int32_t* label;  // [n]; unused without labels
  const T* target;       // [n, columns]; unused with labels
  const T* weights;      // [out], for an elementwise loss
  T* dx;                 // panels
  T* rows;               // scratch [2, n, out]; unused by softmax cross-entropy
  int64_t n, out;
  double scale;
  // Sums over each group of kGroup samples, not scaled: [groups_of(n)].
  double* loss;
  int32_t* correct;  // 0 without labels
};

template <typename T>
void mlp_loss(const MlpLoss& loss, const MlpLossArgs<T>& args, Range groups);

}  // namespace ridgeline::cpu::simd
