#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

// The parts of a sum over ranks of fp32 values that are sent as bf16 and added in fp32.
namespace ridgeline::cuda {

// packed[i] = from[i] for i < count, zeros up to `padded`
cudaError_t launch_narrow(const float* from, __nv_bfloat16* packed, int64_t count, int64_t padded,
                          cudaStream_t stream);
// sum[i] = parts[0][i] + parts[1][i] + ..., in this order, for i < part; parts is [ranks, part]
cudaError_t launch_add_parts(const __nv_bfloat16* parts, __nv_bfloat16* sum, int64_t part,
                             int ranks, cudaStream_t stream);
// to[i] = packed[i] for i < count
cudaError_t launch_widen(const __nv_bfloat16* packed, float* to, int64_t count,
                         cudaStream_t stream);

}  // namespace ridgeline::cuda
