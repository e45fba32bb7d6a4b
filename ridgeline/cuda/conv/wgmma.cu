#include <algorithm>

#include "ridgeline/cuda/conv/implicit_grads.cuh"
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
  // The rows of A that the last pass reads.
  const int last = ((passes - 1) * rows + shape.filter - 1) * columns + shape.filter - 1;
  slab_bytes = whole((last + kConvRows) * slab);
  stage = shape.filter * slabs * outputs * slab;
  const int sums = outputs * kConvPitch * 4, before = kConvHead + slabs * slab_bytes;
  const int room = int(shared_memory) - before;
  stages = std::min(shape.filter, room / stage);
  if (stages < std::min(2, shape.filter) || sums > room) return;
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
  return WgmmaShape(shape, int(width), pooled, shared_memory).words(shape);
}

template <typename T>
cudaError_t launch_conv2d_grad_x_wgmma(const ImplicitGradsArgs<T>& args, const void* words,
                                       cudaStream_t stream) {
  return launch_conv2d_wgmma<T>(
      {args.shape.turned(), GradPieces<T>(args).dz, nullptr, {}, args.dx, true, true}, {},
      args.shared_memory, words, stream);
}
template cudaError_t launch_conv2d_grad_x_wgmma(const ImplicitGradsArgs<float>&, const void*,
                                                cudaStream_t);

#define RIDGELINE_LAUNCH_CONV_WGMMA(T)                                                             \
  template cudaError_t launch_conv2d_wgmma_words(const ImplicitArgs<T>&, bool, size_t, void*,      \
                                                 cudaStream_t);                                    \
  template cudaError_t launch_conv2d_wgmma(const ImplicitArgs<T>&, const PooledOutput<T>&, size_t, \
                                           const void*, cudaStream_t);
RIDGELINE_LAUNCH_CONV_WGMMA(float)
RIDGELINE_LAUNCH_CONV_WGMMA(__nv_bfloat16)
RIDGELINE_LAUNCH_CONV_WGMMA(__half)

}  // namespace ridgeline::cuda
