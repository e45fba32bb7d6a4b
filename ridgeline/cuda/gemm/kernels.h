#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// "cuda.<op>.tensor.<i>": products on the tensor cores by our own kernels, their i-th best by
// estimate; halves from sm_80 up, tf32 on sm_90.
KernelTable gemm_kernels();

}  // namespace ridgeline::cuda
