#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// "cuda.<op>.tensor.<i>": products on the tensor cores by our own kernels, their i-th best by
// estimate; halves from sm_80 up, tf32 on sm_90.
Table gemm_rows();

}  // namespace ridgeline::cuda
