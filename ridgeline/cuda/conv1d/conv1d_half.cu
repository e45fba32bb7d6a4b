#include "ridgeline/cuda/conv1d/variants.cuh"

namespace ridgeline::cuda {
template std::function<cudaError_t(cudaStream_t)> prepare_conv1d(const Conv1dArgs<__nv_bfloat16>&,
                                                                 void*, int);
template std::function<cudaError_t(cudaStream_t)> prepare_conv1d(const Conv1dArgs<__half>&, void*,
                                                                 int);
}  // namespace ridgeline::cuda
