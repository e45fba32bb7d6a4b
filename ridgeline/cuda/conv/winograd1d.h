#pragma once

#include <cstddef>

#include "ridgeline/cuda/conv/implicit.h"

// Convolutions with stride 1 in fp32 by one-dimensional Winograd along the rows (ops/winograd1d.h):
// the inputs of a tile of four outputs are transformed once for all output channels and all rows of
// the filter. A thread takes one point, seven rows of two tiles and four output channels: of an
// input channel it reads each of its rows once and five rows of filters, for 280 multiply-adds.
// Filters come from memory to registers a channel ahead, so that warps need not wait for each
// other. A block takes an image by as many channels as it has threads for; where threads are left,
// they share the input channels out. Filters of 3, 5 and 7, one group. A NaN or an infinity makes
// its tiles NaN. Deterministic.
namespace ridgeline::cuda {

constexpr int kWinograd1dThreads = 512;
constexpr int kWinograd1dTile = 4;                        // outputs
constexpr int kWinograd1dTiles = 2, kWinograd1dRows = 7;  // of a thread

struct Winograd1dShape {
  int points;
  int across, items;            // strips of two tiles of a row; of an image, seven rows high
  int groups, outputs, blocks;  // fours of channels of a block; channels; blocks that share them
  int splits, each;             // shares of the input channels, and channels of a share
  int rows;                     // of the image with its padding, in whole strips
  int plane;                    // transformed inputs of a channel at a point
  int filters;                  // words of a channel's transformed filters
  int threads, shared;          // shared: bytes; 0: does not fit

  Winograd1dShape(const ImplicitShape& shape, size_t shared_memory);
  // Floats of the sums at a point, and between those of strips: neighbours lie in other banks.
  constexpr int sums_pitch() const { return outputs * kWinograd1dTiles + 2; }
  constexpr int sums() const { return items * kWinograd1dRows * sums_pitch(); }
};

const char* refuse_conv2d_winograd1d(const ImplicitShape& shape, size_t shared_memory);
size_t conv2d_winograd1d_workspace(const ImplicitShape& shape, size_t shared_memory);  // bytes

// The first transforms the filters into `packed_filters`; the second convolves with those.
cudaError_t launch_conv2d_winograd1d_pack_filters(const ImplicitArgs<float>& args,
                                                  size_t shared_memory, float* packed_filters,
                                                  cudaStream_t stream);
cudaError_t launch_conv2d_winograd1d(const ImplicitArgs<float>& args,
                                     const PooledOutput<float>& pool, size_t shared_memory,
                                     const float* packed_filters, cudaStream_t stream);

}  // namespace ridgeline::cuda
