#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Whole training steps of networks with one hidden layer over bytes, in tf32 and fp32x3, by fp16
// tensor cores (gemm/fp16_split_u8_products.h).
KernelTable mlp_fp16_split_u8_kernels();

}  // namespace ridgeline::cuda
