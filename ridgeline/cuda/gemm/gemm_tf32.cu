#include "ridgeline/cuda/gemm/gemm.h"
#include "ridgeline/cuda/gemm/variants.cuh"

namespace ridgeline::cuda {
RIDGELINE_GEMM_TF32(, StoreSum)
RIDGELINE_GEMM_TF32(, BiasOnly<float>)
RIDGELINE_GEMM_TF32(, BiasRelu<float>)
}  // namespace ridgeline::cuda
