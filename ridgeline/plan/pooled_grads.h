#pragma once

#include <optional>

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// The gradients of a max pool, of the activation it pools (or none) and of the convolution before,
// as they follow each other in a program.
struct PooledGrads {
  const MaxPoolGrad* pool = nullptr;
  const ActivationGrad* activation = nullptr;
  const Conv2dGradX* x = nullptr;  // absent in the lowest layer
  const Conv2dGradW* w = nullptr;

  size_t ops() const { return 2 + size_t(activation != nullptr) + size_t(x != nullptr); }
  // The gradient of the convolution's output.
  const Value& dz() const { return activation != nullptr ? activation->dx : pool->dx; }
};

std::optional<PooledGrads> find_pooled_grads(const Rest& rest);

// A cover of all of them, which leaves what lies between unwritten; or why that is not to be.
Cover cover_pooled_grads(const Rest& rest, const PooledGrads& grads);

}  // namespace ridgeline
