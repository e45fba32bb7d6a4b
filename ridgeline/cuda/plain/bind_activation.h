#pragma once

#include "ridgeline/cuda/plain/elementwise.h"
#include "ridgeline/ops/activation.h"

namespace ridgeline::cuda {

constexpr ElementwiseFn elementwise_fn(ActivationKind kind) { return ElementwiseFn(int(kind)); }
static_assert(elementwise_fn(ActivationKind::gelu) == ElementwiseFn::gelu);
static_assert(elementwise_fn(ActivationKind::elu) == ElementwiseFn::elu);
static_assert(elementwise_fn(ActivationKind::hardswish) == ElementwiseFn::hardswish);

// The arguments of a GPU function for an Activation or an ActivationGrad.
template <typename Op>
ActivationArgs activation_args(const Op& op) {
  return {elementwise_fn(op.kind), op.parameter};
}

}  // namespace ridgeline::cuda
