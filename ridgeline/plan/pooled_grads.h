#pragma once

#include <optional>

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// The gradients of a max pool, of the activation that it pools (if any) and of the convolution
// before it, as they follow each other in a program.
struct PooledGrads {
  const MaxPoolGrad* pool = nullptr;
  const ActivationGrad* activation = nullptr;
  const Conv2dGradX* x = nullptr;  // absent in the lowest layer
  const Conv2dGradW* w = nullptr;

  size_t ops() const { return 2 + size_t(activation != nullptr) + size_t(x != nullptr); }
  // The gradient of the convolution's output.
  const Value& dz() const { return activation != nullptr ? activation->dx : pool->dx; }
};

std::optional<PooledGrads> find_pooled_grads(const RemainingOps& rest);

// Returns a cover of all of them, which leaves the values between them unwritten; or why it cannot.
Cover cover_pooled_grads(const RemainingOps& rest, const PooledGrads& grads);

}  // namespace ridgeline
