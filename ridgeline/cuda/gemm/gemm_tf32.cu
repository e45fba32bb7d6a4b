#include "ridgeline/cuda/gemm/gemm.h"
#include "ridgeline/cuda/gemm/variants.cuh"

namespace ridgeline::cuda {
RIDGELINE_GEMM_TF32(, StoreSum)
RIDGELINE_GEMM_TF32(, BiasOnly)
RIDGELINE_GEMM_TF32(, BiasRelu)
}  // namespace ridgeline::cuda
