#include "ridgeline/cuda/narrow_sum.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t count) { return unsigned((count + kThreads - 1) / kThreads); }

__device__ int64_t this_element() { return int64_t(blockIdx.x) * kThreads + threadIdx.x; }

__global__ void narrow_kernel(const float* from, __nv_bfloat16* packed, int64_t count,
                              int64_t padded) {
  const int64_t i = this_element();
  if (i < padded) packed[i] = __float2bfloat16(i < count ? from[i] : 0.0f);
}

__global__ void add_parts_kernel(const __nv_bfloat16* parts, __nv_bfloat16* sum, int64_t part,
                                 int ranks) {
  const int64_t i = this_element();
  if (i >= part) return;
  float total = 0;
  for (int r = 0; r < ranks; ++r) total += __bfloat162float(parts[r * part + i]);
  sum[i] = __float2bfloat16(total);
}

__global__ void widen_kernel(const __nv_bfloat16* packed, float* to, int64_t count) {
  const int64_t i = this_element();
  if (i < count) to[i] = __bfloat162float(packed[i]);
}

}  // namespace

cudaError_t launch_narrow(const float* from, __nv_bfloat16* packed, int64_t count, int64_t padded,
                          cudaStream_t stream) {
  narrow_kernel<<<blocks_for(padded), kThreads, 0, stream>>>(from, packed, count, padded);
  return cudaGetLastError();
}

cudaError_t launch_add_parts(const __nv_bfloat16* parts, __nv_bfloat16* sum, int64_t part,
                             int ranks, cudaStream_t stream) {
  add_parts_kernel<<<blocks_for(part), kThreads, 0, stream>>>(parts, sum, part, ranks);
  return cudaGetLastError();
}

cudaError_t launch_widen(const __nv_bfloat16* packed, float* to, int64_t count,
                         cudaStream_t stream) {
  widen_kernel<<<blocks_for(count), kThreads, 0, stream>>>(packed, to, count);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
