#pragma once

#include <string>

#include "ridgeline/cuda/plain/sgd.h"
#include "ridgeline/plan/impl.h"

// What the rows that apply a gradient where it is made have in common.
namespace ridgeline::cuda {

// A linear_grad_w and the sgd_updates that use its gradients and nothing else does.
struct GradWithUpdates {
  const LinearGradW* grad = nullptr;
  const SgdUpdate *w = nullptr, *b = nullptr;  // b null without bias
  size_t ops = 0;
  std::string refusal;  // why the next ops are something else
  Values values;        // all operands of the product's type
};
GradWithUpdates match_grad_with_updates(const Rest& rest);

SgdSettings sgd_settings(const SgdUpdate& op, const Binding& binding);

}  // namespace ridgeline::cuda
