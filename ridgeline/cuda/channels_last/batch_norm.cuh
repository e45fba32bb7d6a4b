#pragma once

// The passes over rows of channels that batch normalisation and its gradient share: their grids,
// and sums over blocks.

#include <algorithm>

#include "ridgeline/cuda/channels_last/batch_norm.h"
#include "ridgeline/cuda/channels_last/run8.cuh"

namespace ridgeline::cuda {

constexpr int kUnroll = 4;       // loads in flight per thread
constexpr int kBlocksPerSm = 4;  // blocks of the summing passes
constexpr int kFinishChannels = 32, kFinishParts = 8;

// The number of blocks along the rows: enough to fill the GPU, but few enough that adding their
// sums stays cheap.
inline int row_blocks(int64_t rows, int c, int sms) {
  const int lanes = std::min(c / kRun, kRowThreads), at_once = kRowThreads / lanes;
  const int64_t needed = (rows + at_once - 1) / at_once;
  return int(std::clamp<int64_t>(needed / kUnroll, 1, int64_t{sms} * kBlocksPerSm));
}
inline dim3 row_grid(int blocks, int c) {
  return {unsigned(blocks), unsigned((c / kRun + kRowThreads - 1) / kRowThreads)};
}

inline dim3 finish_grid(int c) { return {unsigned((c + kFinishChannels - 1) / kFinishChannels)}; }
constexpr dim3 kFinishBlock{kFinishChannels, kFinishParts};

// The grid of a pass that sums nothing.
inline dim3 pass_grid(int64_t rows, int c, int sms) {
  return row_grid(row_blocks(rows, c, 2 * sms), c);
}

// Sums over the kFinishParts threads of each channel, in a block of kFinishChannels channels.
__device__ inline float finish_sum(float value) {
  __shared__ float parts[kFinishParts][kFinishChannels];
  __syncthreads();  // the previous sum has been read
  parts[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  float sum = 0;
  for (int part = 0; part < kFinishParts; ++part) sum += parts[part][threadIdx.x];
  return sum;
}

// The four pixels of a 2 x 2 window, as rows of channels.
struct Quad {
  int64_t row[4];

  __device__ Quad(int64_t window, int h, int w) {
    const int out_w = w / 2, out_h = h / 2;
    const int64_t line = window / out_w, image = line / out_h;
    const int p = int(line % out_h), q = int(window % out_w);
    row[0] = (image * h + 2 * p) * w + 2 * q;
    row[1] = row[0] + 1;
    row[2] = row[0] + w;
    row[3] = row[2] + 1;
  }
};

}  // namespace ridgeline::cuda
