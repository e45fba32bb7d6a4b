#pragma once

namespace ridgeline::cuda {

// The element-wise functions that fused kernels apply. `none` returns its argument unchanged.
enum class ActivationFn : int { none, relu, tanh, sigmoid, gelu };

}  // namespace ridgeline::cuda
