#include <algorithm>
#include <cstdint>

#include "ridgeline/cuda/copy.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kUnits = 4;  // units of 16 bytes in flight per thread

__global__ void copy_kernel(const uint4* __restrict__ from, uint4* __restrict__ to, int64_t count) {
  const int64_t first = int64_t(blockIdx.x) * kThreads * kUnits + threadIdx.x;
  uint4 held[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    if (first + u * kThreads < count) held[u] = from[first + u * kThreads];
  }
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    if (first + u * kThreads < count) to[first + u * kThreads] = held[u];
  }
}

}  // namespace

cudaError_t launch_copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  const int64_t count = int64_t(bytes / sizeof(uint4));
  const int64_t tile = kThreads * kUnits;
  if (count > 0 || bytes == 0) {
    const int64_t blocks = std::max<int64_t>(1, (count + tile - 1) / tile);
    copy_kernel<<<unsigned(blocks), kThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                                           static_cast<uint4*>(to), count);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  const size_t done = size_t(count) * sizeof(uint4);
  if (done == bytes) return cudaSuccess;
  return cudaMemcpyAsync(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
                         bytes - done, cudaMemcpyDeviceToDevice, stream);
}

}  // namespace ridgeline::cuda
