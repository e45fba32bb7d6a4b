#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/gemm.h"

// A linear layer with few outputs over long sums in fp32 (sm_90), by split-K: blocks take tiles of
// 64 x 64 results and a share of k, with most of the share in flight at once; a second launch adds
// the parts. Factors are fp32, products and a warp's sums are fp64 on the tensor cores; all further
// sums are fp32. Deterministic.
namespace ridgeline::cuda {

// Why the kernel does not take such a layer; "" if it does.
const char* refuse_linear_split(int64_t n, int64_t in, int64_t out, int sms);
size_t linear_split_workspace(int64_t n, int64_t in, int64_t out, int sms);  // bytes
cudaError_t launch_linear_split(const LinearArgs<float>& args, int sms, float* workspace,
                                cudaStream_t stream);

}  // namespace ridgeline::cuda
