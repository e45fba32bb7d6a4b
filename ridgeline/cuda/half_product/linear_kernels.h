#pragma once

#include <functional>

#include "ridgeline/cuda/half_product/half_product.h"
#include "ridgeline/cuda/kernel.h"

namespace ridgeline::cuda {

// Launches a product in fp16.
using LaunchHalfProduct = std::function<cudaError_t(const HalfProduct&, cudaStream_t)>;

// Kernels of an fp16 linear layer, forward and both gradients, whose products `launch` computes:
// "cuda.linear.HOW", "cuda.linear_grad_x.HOW", "cuda.linear_grad_w.HOW".
KernelTable half_linear_kernels(const std::string& how, const LaunchHalfProduct& launch,
                                Traits traits);

}  // namespace ridgeline::cuda
