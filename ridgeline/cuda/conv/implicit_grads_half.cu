#include "ridgeline/cuda/conv/implicit_grads.cuh"

namespace ridgeline::cuda {

RIDGELINE_LAUNCH_GRADS(__nv_bfloat16)
RIDGELINE_LAUNCH_GRADS(__half)

}  // namespace ridgeline::cuda
