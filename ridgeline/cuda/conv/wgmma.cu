#include <algorithm>

#include "ridgeline/cuda/conv/grad_maps.h"
#include "ridgeline/cuda/conv/wgmma.cuh"

namespace ridgeline::cuda {

WgmmaShape::WgmmaShape(const ImplicitShape& shape, int width, bool pooled, size_t shared_memory) {
  const int channels = shape.c * width;
  slab = channels <= 32 ? 32 : channels <= 64 ? 64 : 128;
  slabs = (channels + slab - 1) / slab;
  columns = shape.w + 2 * shape.pad;
  outputs = shape.k <= 32 ? 32 : 64;
  blocks = (shape.k + outputs - 1) / outputs;
  rows = kConvRows / columns;
  if (pooled) rows = rows / 2 * 2;
  shared = stages = passes = slab_bytes = stage = 0;
  if (rows == 0) return;
  rows = std::min(rows, (shape.out_h() + 1) / 2 * 2);
  passes = (shape.out_h() + rows - 1) / rows;
  const auto whole = [](int bytes) { return (bytes + 1023) / 1024 * 1024; };
  // The number of rows of A that the last pass reads.
  const int last = ((passes - 1) * rows + shape.filter - 1) * columns + shape.filter - 1;
  slab_bytes = whole((last + kConvRows) * slab);
  stage = shape.filter * slabs * outputs * slab;
  const int sums = outputs * kConvPitch * 4, before = kConvHead + slabs * slab_bytes;
  const int available = int(shared_memory) - before;
  stages = std::min(shape.filter, available / stage);
  if (stages < std::min(2, shape.filter) || sums > available) return;
  shared = before + std::max(sums, stages * stage);
}

const char* refuse_conv2d_wgmma(const ImplicitShape& shape, size_t width, bool pooled,
                                size_t shared_memory) {
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 1 || shape.out_w() < 1) return "there are no outputs";
  const WgmmaShape layout(shape, int(width), pooled, shared_memory);
  if (layout.rows == 0) return "takes images of up to 256 columns, 128 with a pool";
  return layout.shared > 0 ? "" : "image and filters do not fit in shared memory";
}

size_t conv2d_wgmma_workspace(const ImplicitShape& shape, size_t width, bool pooled,
                              size_t shared_memory) {
  return WgmmaShape(shape, int(width), pooled, shared_memory).packed_filter_bytes(shape);
}

const char* refuse_pooled_grad_x_wgmma(const ImplicitShape& shape, size_t width,
                                       size_t shared_memory) {
  const ImplicitShape flipped = shape.flipped();
  if (const char* reason = refuse_conv2d_wgmma(flipped, width, false, shared_memory); *reason) {
    return reason;
  }
  const WgmmaShape layout(flipped, int(width), false, shared_memory);
  if (layout.slab != 128) return "takes more output channels";
  return size_t(layout.shared + kGradSums * 4) <= shared_memory
             ? ""
             : "image and filters do not fit in shared memory";
}

GradMapBytes grad_map_bytes(const ImplicitShape& shape, int sms, size_t shared_memory) {
  const int width = sizeof(float);
  const GradWShares shares = grad_w_shares(shape, width, sms, shared_memory);
  const GradWorkspace at(shape, sizeof(float), shares.groups);
  return {at.x, at.packed_filters, at.bias, at.partial, at.total};
}

cudaError_t launch_pooled_grad_x_wgmma(const ImplicitGradsArgs<float>& args,
                                       const void* packed_filters, cudaStream_t stream) {
  using From = PooledGradInput<float>;
  const ImplicitShape shape = args.shape.flipped();
  const WgmmaShape layout(shape, sizeof(float), false, args.shared_memory);
  const GradMapBytes at = grad_map_bytes(args.shape, args.sms, args.shared_memory);
  auto* bytes = static_cast<std::byte*>(args.workspace);
  const From from{args.dy, bytes, reinterpret_cast<float*>(bytes + at.sums),
                  GradMaps(args.shape, sizeof(float)).parts};
  const auto launch = layout.outputs == 64 ? launch_conv2d_wgmma_as<float, false, 64, From>
                                           : launch_conv2d_wgmma_as<float, false, 32, From>;
  return launch({shape, nullptr, nullptr, {}, args.dx, true, true}, {}, layout, packed_filters,
                stream, from);
}

#define RIDGELINE_LAUNCH_CONV_WGMMA(T)                                                             \
  template cudaError_t launch_conv2d_wgmma_pack_filters(const ImplicitArgs<T>&, bool, size_t,      \
                                                        void*, cudaStream_t);                      \
  template cudaError_t launch_conv2d_wgmma(const ImplicitArgs<T>&, const PooledOutput<T>&, size_t, \
                                           const void*, cudaStream_t);
RIDGELINE_LAUNCH_CONV_WGMMA(float)
RIDGELINE_LAUNCH_CONV_WGMMA(__nv_bfloat16)
RIDGELINE_LAUNCH_CONV_WGMMA(__half)

}  // namespace ridgeline::cuda
