#pragma once

#include <cstddef>

#include "ridgeline/cuda/conv/implicit.h"

// Convolutions with stride 1 in fp32 by one-dimensional Winograd along the rows (ops/winograd1d.h).
// The inputs of a tile of four outputs are transformed once for all output channels and all rows of
// the filter. A thread takes one point, seven rows of two tiles and four output channels; for each
// input channel it reads each of its rows once and five rows of filters, for 280 multiply-adds.
// Filters are loaded into registers one channel ahead, so that warps need not wait for each other.
// A block takes an image by as many channels as it has threads for; leftover threads split the
// input channels. Takes filters of 3, 5 and 7 and one group. A NaN or an infinity makes its tiles
// NaN. Deterministic.
namespace ridgeline::cuda {

constexpr int kWinograd1dThreads = 512;
constexpr int kWinograd1dTile = 4;                        // outputs per tile
constexpr int kWinograd1dTiles = 2, kWinograd1dRows = 7;  // per thread

struct Winograd1dShape {
  int points;
  int across, items;  // strips of two tiles per row; strips per image, seven rows high
  // Groups of four channels per block; channels per block; blocks that split them.
  int groups, outputs, blocks;
  int splits, each;     // splits of the input channels, and channels per split
  int rows;             // rows of the image with its padding, in whole strips
  int plane;            // transformed inputs of a channel at a point
  int filters;          // words of a channel's transformed filters
  int threads, shared;  // shared: bytes; 0 if it does not fit

  Winograd1dShape(const ImplicitShape& shape, size_t shared_memory);
  // The pitch in floats between the sums of strips at a point, which puts neighbours in different
  // banks.
  constexpr int sums_pitch() const { return outputs * kWinograd1dTiles + 2; }
  constexpr int sums() const { return items * kWinograd1dRows * sums_pitch(); }
};

const char* refuse_conv2d_winograd1d(const ImplicitShape& shape, size_t shared_memory);
size_t conv2d_winograd1d_workspace(const ImplicitShape& shape, size_t shared_memory);  // bytes

// The first launch transforms the filters into `packed_filters`; the second convolves with them.
cudaError_t launch_conv2d_winograd1d_pack_filters(const ImplicitArgs<float>& args,
                                                  size_t shared_memory, float* packed_filters,
                                                  cudaStream_t stream);
cudaError_t launch_conv2d_winograd1d(const ImplicitArgs<float>& args,
                                     const PooledOutput<float>& pool, size_t shared_memory,
                                     const float* packed_filters, cudaStream_t stream);

}  // namespace ridgeline::cuda
