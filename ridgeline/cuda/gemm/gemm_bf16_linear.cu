#include "ridgeline/cuda/gemm/gemm.h"
#include "ridgeline/cuda/gemm/variants.cuh"

namespace ridgeline::cuda {
RIDGELINE_GEMM_LINEAR(, __nv_bfloat16)
}  // namespace ridgeline::cuda
