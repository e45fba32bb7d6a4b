#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// "cuda.<op>.tensor.<i>": products on the tensor cores by our own kernels, their i-th best by
// estimate; halves from sm_80 up, tf32 on sm_90. "cuda.<op>.stream": the best of those that share
// all stages of k of all tiles out evenly (gemm/stream_k.cuh); sm_90, extents by 16 bytes.
Table gemm_rows();

}  // namespace ridgeline::cuda
