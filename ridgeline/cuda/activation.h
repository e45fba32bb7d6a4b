#pragma once

namespace ridgeline::cuda {

// The element-wise functions, as kernels take them; `none` leaves its argument as it is.
enum class ActivationFn : int { none, relu, tanh, sigmoid, gelu };

}  // namespace ridgeline::cuda
