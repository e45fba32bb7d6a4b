#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Linear layers in fp16 on the tensor cores of every GPU from sm_75 on, with sums in fp32 or, if
// the program requests it, in fp16.
KernelTable half_product_kernels();

}  // namespace ridgeline::cuda
