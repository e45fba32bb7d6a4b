#pragma once

#include <algorithm>
#include <cstdint>

// Grid-stride loops over all elements, with a grid of moderate size.
namespace ridgeline::cuda {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 16384;  // a loop covers the rest

inline unsigned blocks_for(int64_t count) {
  return unsigned(std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, kMostBlocks));
}

__device__ inline int64_t first_index() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t index_stride() { return int64_t(gridDim.x) * blockDim.x; }

// Sums over a block in a fixed order; all threads receive the result. kMost: the largest block, a
// multiple of 32. Every thread must call it.
template <int kMost, typename A>
__device__ A block_sum(A value) {
  __shared__ A part[kMost / 32];
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  __syncthreads();  // the previous sum has been read
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  A sum = A(0);
  for (int warp = 0; warp < int(blockDim.x) / 32; ++warp) sum += part[warp];
  return sum;
}

}  // namespace ridgeline::cuda
