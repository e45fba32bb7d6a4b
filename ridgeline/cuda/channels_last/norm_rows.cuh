#pragma once

#include <algorithm>

#include "ridgeline/cuda/channels_last/run8.cuh"

// The passes over rows of channels that batch normalisation and its gradient share: their grids,
// the sums of the blocks' sums, and the windows of a pool.
namespace ridgeline::cuda {

constexpr int kUnroll = 4;          // loads in flight per thread
constexpr int kMaxBlocksPerSm = 4;  // of the summing passes
constexpr int kFinishChannels = kRun, kFinishParts = 128, kFinishBatch = 5;

// The number of blocks along the rows: as many as are resident at once, since a second wave would
// fill the GPU in part only, but no more than there is work for.
inline int row_blocks(int64_t rows, int c, int sms, int blocks_per_sm) {
  const int lanes = std::min(c / kRun, kRowThreads), at_once = kRowThreads / lanes;
  const int64_t needed = (rows + at_once - 1) / at_once;
  return int(std::clamp<int64_t>(needed / kUnroll, 1, int64_t{sms} * blocks_per_sm));
}
inline dim3 row_grid(int blocks, int c) {
  return {unsigned(blocks), unsigned((c / kRun + kRowThreads - 1) / kRowThreads)};
}

// The launch that adds the blocks' sums: kFinishParts threads for each channel.
inline dim3 finish_grid(int c) { return {unsigned(c / kFinishChannels)}; }
constexpr dim3 kFinishBlock{kFinishChannels, kFinishParts};
__device__ inline int finish_channel() {
  return int(blockIdx.x) * kFinishChannels + int(threadIdx.x);
}

// Calls f(block, first, second) with the two sums per channel of each block that this thread adds.
// The loads of a batch are in flight together, because their latency is what this costs.
template <typename F>
__device__ void each_block_sum(const float* partial, int c, int blocks, F f) {
  const int channel = finish_channel();
  for (int begin = int(threadIdx.y); begin < blocks; begin += kFinishBatch * kFinishParts) {
    float first[kFinishBatch], second[kFinishBatch];
#pragma unroll
    for (int i = 0; i < kFinishBatch; ++i) {
      const int block = min(begin + i * kFinishParts, blocks - 1);
      const float* from = partial + int64_t(block) * 2 * c + channel;
      first[i] = from[0];
      second[i] = from[c];
    }
#pragma unroll
    for (int i = 0; i < kFinishBatch; ++i) {
      const int block = begin + i * kFinishParts;
      if (block < blocks) f(block, first[i], second[i]);
    }
  }
}

// Sums over the kFinishParts threads of each channel, in a fixed order.
__device__ inline float finish_sum(float value) {
  constexpr int kPartsPerWarp = 32 / kFinishChannels, kWarps = kFinishParts / kPartsPerWarp;
  __shared__ float sums[kWarps][kFinishChannels];
#pragma unroll
  for (int lane = kFinishChannels; lane < 32; lane *= 2) {
    value += __shfl_xor_sync(~0u, value, lane);
  }
  __syncthreads();  // the previous sum has been read
  if (threadIdx.y % kPartsPerWarp == 0) sums[threadIdx.y / kPartsPerWarp][threadIdx.x] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][threadIdx.x];
  return sum;
}

// The four pixels of a 2 x 2 window, as rows of channels. The images have even extents, so their
// lines of windows follow one another, and the number of rows fits an int.
struct Quad {
  int64_t first;
  int w;

  __device__ Quad(int64_t window, int width) : w(width) {
    first = 2 * window + int64_t{unsigned(window) / unsigned(w / 2)} * w;
  }
  __device__ int64_t row(int i) const { return first + (i / 2 == 0 ? 0 : w) + i % 2; }
};

}  // namespace ridgeline::cuda
