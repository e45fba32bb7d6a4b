#include "ridgeline/cuda/conv/implicit_grad_w.cuh"

namespace ridgeline::cuda {

template cudaError_t launch_conv2d_grad_w_implicit(const ImplicitGradWArgs<__nv_bfloat16>&, void*,
                                                   int, cudaStream_t);
template cudaError_t launch_conv2d_grad_w_implicit(const ImplicitGradWArgs<__half>&, void*, int,
                                                   cudaStream_t);

}  // namespace ridgeline::cuda
