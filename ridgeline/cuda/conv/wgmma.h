#pragma once

#include <cstddef>

#include "ridgeline/cuda/conv/implicit.h"

// Convolutions with stride 1 as implicit matrix products on wgmma (sm_90a). A block takes an image
// by up to 64 output channels.
namespace ridgeline::cuda {

// The layout of the image in shared memory: channels-last, pixel after pixel along its padded rows,
// in slabs of up to 128 bytes of channels. Each output pixel is a row of A. So are the few
// positions past the end of each image row, whose sums are discarded; a tap of the filter therefore
// only changes the row where A begins.
struct WgmmaShape {
  int slab, slabs;      // bytes of a pixel in a slab (32, 64 or 128), and the number of slabs
  int columns;          // columns of the padded image
  int outputs, blocks;  // output channels per block (32 or 64), and blocks that split them
  int rows, passes;     // output rows per pass (four warpgroups), and the number of passes
  int slab_bytes;       // bytes of a slab of the image
  int stage, stages;    // bytes of one row of the filters, and how many rows shared memory holds
  int shared;           // bytes; 0 if it does not fit

  WgmmaShape(const ImplicitShape& shape, int width, bool pooled, size_t shared_memory);
  size_t packed_filter_bytes(const ImplicitShape& shape) const {  // bytes of the packed filters
    return size_t(blocks) * size_t(shape.filter) * size_t(stage);
  }
};

const char* refuse_conv2d_wgmma(const ImplicitShape& shape, size_t width, bool pooled,
                                size_t shared_memory);
size_t conv2d_wgmma_workspace(const ImplicitShape& shape, size_t width, bool pooled,
                              size_t shared_memory);

// The first launch packs the filters into `packed_filters`; the second convolves with them. T:
// bf16, fp16, or float (tf32).
template <typename T>
cudaError_t launch_conv2d_wgmma_pack_filters(const ImplicitArgs<T>& args, bool pooled,
                                             size_t shared_memory, void* packed_filters,
                                             cudaStream_t stream);
template <typename T>
cudaError_t launch_conv2d_wgmma(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                                size_t shared_memory, const void* packed_filters,
                                cudaStream_t stream);

// In tf32, dx is computed likewise from the gradient after pool and activation, with the packed
// filters of shape.flipped(). The kernel leaves the gradient before them, and its sums, where dw's
// kernel of conv/implicit.h expects them; launch_conv2d_grad_maps() without dy makes the map of x
// for that kernel.
struct GradMapBytes {
  size_t x, packed_filters, sums, partial,
      total;  // byte offsets of the parts of that workspace; dz is at 0
};
GradMapBytes grad_map_bytes(const ImplicitShape& shape, int sms, size_t shared_memory);
const char* refuse_pooled_grad_x_wgmma(const ImplicitShape& shape, size_t width,
                                       size_t shared_memory);
cudaError_t launch_pooled_grad_x_wgmma(const ImplicitGradsArgs<float>& args,
                                       const void* packed_filters, cudaStream_t stream);

// The kernel that computes dx stores the output's gradient here.
template <typename T>
struct PooledGradInput {
  OutputGrad<T> dy;  // dy.a is not null
  std::byte* map;    // [n, in the shared-memory layout]; tf32: [n, h, w, channels padded to fours]
  float* sums;       // [n, k]; tf32: [n, parts, channels padded to fours]
  int parts;         // tf32: all parts but the first are zero
};
struct NoInput {};

// The gradients of halves without separate maps: dx, which leaves the gradient of the output in the
// workspace, and dw from that and a copy of x. Both are streams of pixels along rows of `columns`,
// in the layout of dx's blocks.
struct StreamShape {
  WgmmaShape dx;          // the layout for shape.flipped()
  int pixels;             // output pixels along padded rows, in whole steps of two warpgroups
  int dz_from, dz_first;  // pixels of dz's map: where the copy begins, and the first output
  int dz_bytes, x_bytes;  // bytes of an image's pixels that a block copies
  int x_map;              // bytes of 32 channels of an image in the map of x
  int channel_blocks, output_blocks, groups;  // for dw; groups: shares of the images
  int stage, stages, shared;                  // bytes; shared is 0 if it does not fit

  StreamShape(const ImplicitShape& shape, int sms, size_t shared_memory);
};

// Byte offsets in the workspace: the filters, the map of x, the map of dz and its sums, and the
// partial sums of dw.
struct StreamWorkspace {
  size_t packed_filters, x, dz, sums, partial, total;

  StreamWorkspace(const ImplicitShape& shape, const StreamShape& stream);
};

const char* refuse_grads_wgmma(const ImplicitShape& shape, size_t shared_memory);
// Four launches. The packing of the filters and the map of x may run at any time before the other
// two.
template <typename T>
cudaError_t launch_stream_pack_filters(const ImplicitGradsArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_stream_x(const ImplicitGradsArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_stream_grad_x(const ImplicitGradsArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_stream_grad_w(const ImplicitGradsArgs<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda
