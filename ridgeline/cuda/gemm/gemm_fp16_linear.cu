#include "ridgeline/cuda/gemm/gemm.h"
#include "ridgeline/cuda/gemm/variants.cuh"

namespace ridgeline::cuda {
RIDGELINE_GEMM_LINEAR(, __half)
}  // namespace ridgeline::cuda
