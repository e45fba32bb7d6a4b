#pragma once

#include <cstddef>

#include "ridgeline/cuda/conv/implicit.h"

// Convolutions with stride 1 in fp32 with fewer multiplications along the rows (ops/toom.h): tiles
// of four outputs, whose inputs are transformed once for all output channels and all rows of the
// filter. A thread takes one point, seven rows of two tiles and four output channels: of an input
// channel it reads each of its rows once and five rows of filters, for 280 multiply-adds. Filters
// come from memory to registers a channel ahead, so that warps need not wait for each other. A
// block takes an image by as many channels as it has threads for; where threads are left, they
// share the input channels out. Filters of 3, 5 and 7, one group. A NaN or an infinity makes its
// tiles NaN. Deterministic.
namespace ridgeline::cuda {

constexpr int kToomThreads = 512;
constexpr int kToomTile = 4;                  // outputs
constexpr int kToomTiles = 2, kToomRows = 7;  // of a thread

struct ToomShape {
  int points;
  int across, items;            // strips of two tiles of a row; of an image, seven rows high
  int groups, outputs, blocks;  // fours of channels of a block; channels; blocks that share them
  int splits, each;             // shares of the input channels, and channels of a share
  int rows;                     // of the image with its padding, in whole strips
  int plane;                    // transformed inputs of a channel at a point
  int filters;                  // words of a channel's transformed filters
  int threads, shared;          // shared: bytes; 0: does not fit

  ToomShape(const ImplicitShape& shape, size_t shared_memory);
  // Floats of the sums at a point, and between those of strips: neighbours lie in other banks.
  constexpr int sums_pitch() const { return outputs * kToomTiles + 2; }
  constexpr int sums() const { return items * kToomRows * sums_pitch(); }
};

const char* refuse_conv2d_toom(const ImplicitShape& shape, size_t shared_memory);
size_t conv2d_toom_workspace(const ImplicitShape& shape, size_t shared_memory);  // bytes

// The filters, transformed, in `words`; then the convolution of args with those.
cudaError_t launch_conv2d_toom_words(const ImplicitArgs<float>& args, size_t shared_memory,
                                     float* words, cudaStream_t stream);
cudaError_t launch_conv2d_toom(const ImplicitArgs<float>& args, const PooledOutput<float>& pool,
                               size_t shared_memory, const float* words, cudaStream_t stream);

}  // namespace ridgeline::cuda
