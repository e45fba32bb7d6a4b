#include <algorithm>

#include "ridgeline/cuda/conv/grad_maps.h"
#include "ridgeline/cuda/conv/grad_w_sum.cuh"
#include "ridgeline/cuda/conv/wgmma_grad_w.cuh"

namespace ridgeline::cuda {
namespace {

int whole(int bytes, int of) { return (bytes + of - 1) / of * of; }

// Makes the arguments of the launches from those of the kernel.
template <typename T>
struct Stream {
  StreamShape shape;
  std::byte *packed_filters, *x, *dz;
  float *sums, *partial;

  explicit Stream(const ImplicitGradsArgs<T>& args)
      : shape(args.shape, args.sms, args.shared_memory) {
    const StreamWorkspace at(args.shape, shape);
    auto* bytes = static_cast<std::byte*>(args.workspace);
    packed_filters = bytes + at.packed_filters, x = bytes + at.x, dz = bytes + at.dz;
    sums = reinterpret_cast<float*>(bytes + at.sums);
    partial = reinterpret_cast<float*>(bytes + at.partial);
  }
};

template <typename T, int kFilter>
cudaError_t launch_grad_w_as(const ImplicitGradsArgs<T>& args, cudaStream_t stream) {
  const ImplicitShape& shape = args.shape;
  const Stream<T> at(args);
  const auto kernel = conv2d_grad_w_wgmma_kernel<T, kFilter>;
  const cudaError_t error = allow_shared(kernel, at.shape.shared);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(at.shape.channel_blocks * kFilter), unsigned(at.shape.groups),
                  unsigned(at.shape.output_blocks));
  kernel<<<grid, kTapThreads, size_t(at.shape.shared), stream>>>(shape, at.shape, at.dz, at.x,
                                                                 at.partial);
  const int taps = shape.c * kFilter * kFilter;
  return launch_grad_w_sum<T>({at.partial, at.shape.groups, int64_t(taps) * shape.k},
                              {at.sums, shape.n, shape.k}, taps, shape.k, args.dw, args.db, stream);
}

}  // namespace

StreamShape::StreamShape(const ImplicitShape& shape, int sms, size_t shared_memory)
    : dx(shape.flipped(), 2, false, shared_memory) {
  const int pad = shape.flipped().pad, outputs = shape.out_h() * dx.columns;
  pixels = whole(outputs, kTapGroups * 16);
  dz_first = pad * (dx.columns + 1);
  dz_from = dz_first / 8 * 8;
  dz_bytes = (dz_first - dz_from + pixels) * kTapDz;
  // This extends from the first of eight pixels to the last tap of the last step of k.
  x_bytes = whole(pixels + shape.filter - 1 + 7, 16) * kTapX;
  x_map = (shape.filter - 1) * dx.columns / 8 * 8 * kTapX + x_bytes;
  channel_blocks = (shape.c + kTapChannels - 1) / kTapChannels;
  output_blocks = (shape.k + kTapOutputs - 1) / kTapOutputs;
  const int blocks = channel_blocks * shape.filter * output_blocks;
  const int shares = std::clamp(sms / blocks, 1, shape.n);
  const int each = (shape.n + shares - 1) / shares;
  groups = (shape.n + each - 1) / each;
  stage = whole(dz_bytes, 1024) + x_bytes;
  // compute-sanitizer assumes that the columns of a descriptor are consecutive, although here
  // successive taps overlap. The space behind the last stage covers what it assumes is read.
  const int believed = shape.filter * kTapX * 16;
  stages = std::min({(int(shared_memory) - kTapHead - believed) / stage, 3, each});
  const int exchange = kTapOutputs * kTapChannels * shape.filter * 4;
  const int bytes = kTapHead + std::max(stages * stage + believed, exchange);
  shared = stages >= std::min(2, each) && size_t(bytes) <= shared_memory ? bytes : 0;
}

StreamWorkspace::StreamWorkspace(const ImplicitShape& shape, const StreamShape& stream) {
  const auto aligned = [](size_t bytes) { return (bytes + 1023) / 1024 * 1024; };
  const auto images = size_t(shape.n), k = size_t(shape.k);
  packed_filters = 0;
  x = aligned(stream.dx.packed_filter_bytes(shape.flipped()));
  dz = x + aligned(images * size_t(stream.channel_blocks) * size_t(stream.x_map));
  sums = dz + images * size_t(stream.dx.slabs) * size_t(stream.dx.slab_bytes);
  partial = sums + aligned(images * k * 4);
  total = partial +
          size_t(stream.groups) * k * size_t(shape.c) * size_t(shape.filter * shape.filter) * 4;
}

const char* refuse_grads_wgmma(const ImplicitShape& shape, size_t shared_memory) {
  if (shape.filter != 3 && shape.filter != 5 && shape.filter != 7) {
    return "takes square filters of 3, 5 and 7";
  }
  if (2 * shape.pad > shape.filter - 1) return "takes padding of up to half a filter";
  if (shape.k <= 32) return "takes more than 32 output channels";
  if (const char* reason = refuse_conv2d_wgmma(shape.flipped(), 2, false, shared_memory); *reason) {
    return reason;
  }
  const StreamShape stream(shape, 1, shared_memory);
  if (int64_t(shape.n) * stream.channel_blocks > 65535)
    return "takes fewer images";  // the limit of the grid's second dimension
  const bool inside = stream.dz_from * kTapDz + stream.dz_bytes <= stream.dx.slab_bytes &&
                      size_t(stream.dx.shared + kGradSums * 4) <= shared_memory;
  return stream.shared > 0 && inside ? "" : "two images do not fit in shared memory";
}

template <typename T>
cudaError_t launch_stream_pack_filters(const ImplicitGradsArgs<T>& args, cudaStream_t stream) {
  return launch_conv2d_wgmma_pack_filters<T>(
      {args.shape.flipped(), nullptr, args.w, {}, nullptr, true, true}, false, args.shared_memory,
      Stream<T>(args).packed_filters, stream);
}

template <typename T>
cudaError_t launch_stream_x(const ImplicitGradsArgs<T>& args, cudaStream_t stream) {
  const Stream<T> at(args);
  const int items = at.shape.x_map / 16;
  const dim3 grid(unsigned((items + 255) / 256), unsigned(args.shape.n * at.shape.channel_blocks));
  conv2d_stream_x_kernel<T><<<grid, 256, 0, stream>>>(args.shape, at.shape, args.x, at.x);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_stream_grad_x(const ImplicitGradsArgs<T>& args, cudaStream_t stream) {
  const Stream<T> at(args);
  const WgmmaShape& layout = at.shape.dx;
  const auto launch = layout.outputs == 64
                          ? launch_conv2d_wgmma_as<T, false, 64, PooledGradInput<T>>
                          : launch_conv2d_wgmma_as<T, false, 32, PooledGradInput<T>>;
  return launch({args.shape.flipped(), nullptr, nullptr, {}, args.dx, true, true}, {}, layout,
                at.packed_filters, stream, {args.dy, at.dz, at.sums, 1});
}

template <typename T>
cudaError_t launch_stream_grad_w(const ImplicitGradsArgs<T>& args, cudaStream_t stream) {
  const auto launch = args.shape.filter == 3   ? launch_grad_w_as<T, 3>
                      : args.shape.filter == 5 ? launch_grad_w_as<T, 5>
                                               : launch_grad_w_as<T, 7>;
  return launch(args, stream);
}

#define RIDGELINE_LAUNCH_STREAM(T)                                                            \
  template cudaError_t launch_stream_pack_filters(const ImplicitGradsArgs<T>&, cudaStream_t); \
  template cudaError_t launch_stream_x(const ImplicitGradsArgs<T>&, cudaStream_t);            \
  template cudaError_t launch_stream_grad_x(const ImplicitGradsArgs<T>&, cudaStream_t);       \
  template cudaError_t launch_stream_grad_w(const ImplicitGradsArgs<T>&, cudaStream_t);
RIDGELINE_LAUNCH_STREAM(__nv_bfloat16)
RIDGELINE_LAUNCH_STREAM(__half)

}  // namespace ridgeline::cuda
