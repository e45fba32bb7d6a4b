#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/gemm.h"

// A linear layer of few outputs over long sums in fp32 (sm_90): blocks share tiles of 64 x 64
// results and split k, with most of a block's share on its way at once; a second launch adds up.
// Factors are fp32, products and a warp's sums fp64 on the tensor cores; from there on sums are
// fp32. Deterministic.
namespace ridgeline::cuda {

// Why the kernel does not take such a layer; "" when it does.
const char* refuse_linear_split(int64_t n, int64_t in, int64_t out, int sms);
size_t linear_split_workspace(int64_t n, int64_t in, int64_t out, int sms);  // bytes
cudaError_t launch_linear_split(const LinearArgs<float>& args, int sms, float* workspace,
                                cudaStream_t stream);

}  // namespace ridgeline::cuda
