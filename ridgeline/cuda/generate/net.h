#pragma once

#include <optional>

#include "ridgeline/plan/mlp_step.h"

namespace ridgeline::cuda::generate {

// What generated kernels multiply with: numbers.cuh has one class for each.
enum class Math : uint8_t { bf16, fp16, tf32, fp32, fp64 };

using NetLayer = MlpStepOps::Layer;

// A whole training step of a multilayer perceptron, and what it is computed in.
struct NetStep : MlpStepOps {
  Math math = Math::fp32;

  const Value& loss() const;
  const Value& correct() const;
  double scale() const;
  // Values of a sample's target; 0: a label.
  int64_t target_columns() const;
  bool adam() const { return layers.front().adam_w != nullptr; }
  // As updates keep weights (masters, or what products read) and biases.
  DType kept() const { return adam() ? layers[0].adam_w->w.dtype : layers[0].sgd_w->w.dtype; }
};

// What values of this type are multiplied with, if they are.
std::optional<Math> math_of(DType dtype, Precision precision);

// The step that the whole of the program is.
NetStep match_net_step(const Rest& rest);

}  // namespace ridgeline::cuda::generate
