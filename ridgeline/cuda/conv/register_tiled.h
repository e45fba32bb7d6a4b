#pragma once

#include <cstddef>

#include "ridgeline/cuda/conv/implicit.h"

// Convolutions with stride 1 in fp32 multiply-adds. A thread takes a strip of 14 pixels of a row by
// four output channels and keeps the sums in registers: for each row of the filter it reads the
// strip once, and four weights per tap. A block takes an image by as many channels as it has
// threads for; leftover threads split the input channels. Takes filters of 3, 5 and 7 and one
// group.
namespace ridgeline::cuda {

constexpr int kStripThreads = 448;  // 3.5 warps per scheduler, with 144 registers per thread
constexpr int kStripPixels = 14, kStripOutputs = 4, kStripStages = 3;
constexpr int kStripMost = 64;  // output channels per block

struct RegisterTiledShape {
  // Strips per row; items per block: strips of all rows by groups of four channels.
  int strips, items;
  int outputs, blocks;  // output channels per block; blocks that split them
  int splits, each;     // splits of the input channels, and channels per split
  int pitch, plane;     // words of the padded image in shared memory
  int filters;          // words of a channel's filters
  int shared;           // bytes; 0 if it does not fit

  RegisterTiledShape(const ImplicitShape& shape, size_t shared_memory);
};

const char* refuse_conv2d_register_tiled(const ImplicitShape& shape, size_t shared_memory);
size_t conv2d_register_tiled_workspace(const ImplicitShape& shape, size_t shared_memory);  // bytes

// The first launch packs the filters into `packed_filters`; the second convolves with them.
cudaError_t launch_conv2d_register_tiled_pack_filters(const ImplicitArgs<float>& args,
                                                      size_t shared_memory, float* packed_filters,
                                                      cudaStream_t stream);
cudaError_t launch_conv2d_register_tiled(const ImplicitArgs<float>& args,
                                         const PooledOutput<float>& pool, size_t shared_memory,
                                         const float* packed_filters, cudaStream_t stream);

}  // namespace ridgeline::cuda
