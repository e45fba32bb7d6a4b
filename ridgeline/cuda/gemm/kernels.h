#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// "cuda.<op>.tensor.<i>": our own tensor-core products, the i-th best by estimate. Halves from
// sm_80 on, tf32 on sm_90.
KernelTable gemm_kernels();

}  // namespace ridgeline::cuda
