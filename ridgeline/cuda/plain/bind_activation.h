#pragma once

#include "ridgeline/cuda/plain/elementwise.h"
#include "ridgeline/ops/activation.h"

namespace ridgeline::cuda {

// No op has ActivationKind::none, which ElementwiseFn lacks.
constexpr ElementwiseFn elementwise_fn(ActivationKind kind) { return ElementwiseFn(int(kind) - 1); }
static_assert(elementwise_fn(ActivationKind::relu) == ElementwiseFn::relu);
static_assert(elementwise_fn(ActivationKind::gelu) == ElementwiseFn::gelu);
static_assert(elementwise_fn(ActivationKind::elu) == ElementwiseFn::elu);
static_assert(elementwise_fn(ActivationKind::hardswish) == ElementwiseFn::hardswish);

// The arguments of a GPU function for an Activation or an ActivationGrad.
template <typename Op>
ActivationArgs activation_args(const Op& op) {
  return {elementwise_fn(op.kind), op.parameter};
}

}  // namespace ridgeline::cuda
