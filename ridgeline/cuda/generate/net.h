#pragma once

#include <optional>

#include "ridgeline/plan/mlp_step.h"

namespace ridgeline::cuda::generate {

// The number types that generated functions multiply in: numbers.cuh has one class for each.
enum class Math : uint8_t { bf16, fp16, tf32, fp32, fp64 };

using NetLayer = MlpStepOps::Layer;

// A whole training step of a multilayer perceptron, perhaps with convolutions below it, and the
// number type it is computed in.
struct NetStep : MlpStepOps {
  Math math = Math::fp32;

  const Value& loss() const;
  const Value& correct() const;
  double scale() const;
  // Values per sample of the target; 0 if it is a label.
  int64_t target_columns() const;
  // The lowest linear layer whose input gradient is wanted.
  size_t lowest_gradient() const { return convolutions.empty() ? 1 : 0; }
  bool adam() const { return layers.front().adam_w != nullptr; }
  // The type in which updates keep weights (master weights, or those that products read) and
  // biases.
  DType kept() const { return adam() ? layers[0].adam_w->w.dtype : layers[0].sgd_w->w.dtype; }
};

// The number type in which values of this dtype are multiplied, if they can be.
std::optional<Math> math_of(DType dtype, Precision precision);

// Matches a whole program to such a step.
NetStep match_net_step(const RemainingOps& rest);

}  // namespace ridgeline::cuda::generate
