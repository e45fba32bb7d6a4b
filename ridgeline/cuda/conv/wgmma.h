#pragma once

#include <cstddef>

#include "ridgeline/cuda/conv/implicit.h"

// Convolutions with stride 1 as implicit matrix products on wgmma (sm_90a). A
// block takes an image by up to 64 output channels.
namespace ridgeline::cuda {

// How the image lies in shared memory: channels last, pixel after pixel along its padded rows, in
// slabs of up to 128 bytes of channels. An output pixel is a row of A, and so are the few past the
// end of each row of the image, whose sums nobody reads: so a tap of the filter only moves the row
// where A begins.
struct WgmmaShape {
  int slab, slabs;      // bytes of a pixel in a slab: 32, 64 or 128
  int columns;          // of the padded image
  int outputs, blocks;  // of a block: 32 or 64; blocks that share the output channels
  int rows, passes;     // rows of the output in a pass, which four warpgroups take together
  int slab_bytes;       // of the image
  int stage, stages;    // bytes of one row of the filter, and how many rows lie in shared memory
  int shared;           // bytes; 0: does not fit

  WgmmaShape(const ImplicitShape& shape, int width, bool pooled, size_t shared_memory);
  size_t packed_filter_bytes(const ImplicitShape& shape) const {  // bytes of the packed filters
    return size_t(blocks) * size_t(shape.filter) * size_t(stage);
  }
};

const char* refuse_conv2d_wgmma(const ImplicitShape& shape, size_t width, bool pooled,
                                size_t shared_memory);
size_t conv2d_wgmma_workspace(const ImplicitShape& shape, size_t width, bool pooled,
                              size_t shared_memory);

// The first packs the filters into `packed_filters`; the second convolves with those. T: bf16,
// fp16, float (tf32).
template <typename T>
cudaError_t launch_conv2d_wgmma_pack_filters(const ImplicitArgs<T>& args, bool pooled,
                                             size_t shared_memory, void* packed_filters,
                                             cudaStream_t stream);
template <typename T>
cudaError_t launch_conv2d_wgmma(const ImplicitArgs<T>& args, const PooledOutput<T>& pool,
                                size_t shared_memory, const void* packed_filters,
                                cudaStream_t stream);

// In tf32 dx likewise from the gradient behind pool and activation, with the filters of
// shape.flipped(), arranged. It leaves the gradient before them, and its sums, where dw's kernel of
// conv/implicit.h looks for them; that one's map of x is launch_conv2d_grad_maps() without dy.
struct GradMapBytes {
  size_t x, packed_filters, sums, partial,
      total;  // where the parts of that workspace begin; dz: at 0
};
GradMapBytes grad_map_bytes(const ImplicitShape& shape, int sms, size_t shared_memory);
const char* refuse_pooled_grad_x_wgmma(const ImplicitShape& shape, size_t width,
                                       size_t shared_memory);
cudaError_t launch_pooled_grad_x_wgmma(const ImplicitGradsArgs<float>& args,
                                       const void* packed_filters, cudaStream_t stream);

// Where the gradient of the output is made in the kernel that takes dx from it.
template <typename T>
struct PooledGradInput {
  OutputGrad<T> dy;  // dy.a is not null
  std::byte* map;    // [n, as it lies in shared memory]; tf32: [n, h, w, channels in fours]
  float* sums;       // [n, k]; tf32: [n, parts, channels in fours]
  int parts;         // tf32: all but the first are zero
};
struct NoInput {};

// The gradients of halves without other maps: dx, which leaves the gradient of the output in the
// workspace, and dw from that and a copy of x. How these streams of pixels lie: along rows of
// `columns`, as the block of dx has them.
struct StreamShape {
  WgmmaShape dx;          // of shape.flipped()
  int pixels;             // of the output along padded rows, in whole steps of two warpgroups
  int dz_from, dz_first;  // pixels of dz's map: where the copy begins, the first output
  int dz_bytes, x_bytes;  // of an image's pixels that a block copies
  int x_map;              // bytes of 32 channels of an image in x's map
  int channel_blocks, output_blocks, groups;  // of dw; groups: shares of the images
  int stage, stages, shared;                  // bytes; shared 0: does not fit

  StreamShape(const ImplicitShape& shape, int sms, size_t shared_memory);
};

// Bytes from the workspace's start: the filters, x's map, dz's map and sums, shares of dw.
struct StreamWorkspace {
  size_t packed_filters, x, dz, sums, partial, total;

  StreamWorkspace(const ImplicitShape& shape, const StreamShape& stream);
};

const char* refuse_grads_wgmma(const ImplicitShape& shape, size_t shared_memory);
// Four launches: the filters and x's map may be made at any time before the others.
template <typename T>
cudaError_t launch_stream_pack_filters(const ImplicitGradsArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_stream_x(const ImplicitGradsArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_stream_grad_x(const ImplicitGradsArgs<T>& args, cudaStream_t stream);
template <typename T>
cudaError_t launch_stream_grad_w(const ImplicitGradsArgs<T>& args, cudaStream_t stream);

}  // namespace ridgeline::cuda
