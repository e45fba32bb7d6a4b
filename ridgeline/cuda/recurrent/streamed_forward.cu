#include "ridgeline/cuda/recurrent/persistent_launch.cuh"
#include "ridgeline/cuda/recurrent/streamed_begin.cuh"
#include "ridgeline/cuda/recurrent/streamed_forward.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

// Calls f<quads, tiles of items> of a shape.
template <typename F>
auto dispatch_shape(const StreamShape& shape, F f) {
  if (shape.rows == 64) {
    if (shape.units == 16) return f.template operator()<4, 1>();
    return f.template operator()<5, 1>();
  }
  switch (shape.units) {
    case 16:
      return f.template operator()<4, 2>();
    case 20:
      return f.template operator()<5, 2>();
    case 32:
      return f.template operator()<8, 2>();
    default:
      return f.template operator()<10, 2>();
  }
}

template <typename T>
const void* kernel_of(const StreamShape& shape) {
  return dispatch_shape(shape, [&]<int kQuads, int kTiles>() {
    return reinterpret_cast<const void*>(rnn_forward_streamed_kernel<T, kQuads, kTiles>);
  });
}

}  // namespace

StreamedLayout streamed_forward_layout(Cell cell, int planes, int hidden, int batch,
                                       int processors) {
  StreamedLayout layout;
  StreamShape& s = layout.stream;
  if (cell != Cell::lstm || planes > 1 || hidden % 4 != 0) {
    layout.refusal = "takes LSTMs in bf16 and fp16 whose hidden units come in fours";
    return layout;
  }
  s.rows = batch <= 64 ? 64 : 128;
  s.groups = batch <= 128 ? 1 : kStreamGroups;
  for (const int units : {16, 20, 32, 40}) {
    s.units = units;
    s.tiles = (hidden + units - 1) / units;
    if (s.tiles * s.groups <= processors || (units == 20 && s.groups == 1)) break;
  }
  layout.shape.tiles = s.tiles;
  layout.shape.groups = s.groups;
  if (layout.blocks() > processors) {
    layout.refusal = "more hidden units than the GPU has room for";
    return layout;
  }
  s.blocks_of_k = (hidden + kStreamWidth - 1) / kStreamWidth;
  s.stages = s.rows == 64 ? 6 : s.units <= 20 ? 5 : 4;
  const size_t weights = size_t(4) * s.units * 128;
  const size_t stage = size_t(s.rows / 64) * kStreamTileBytes + weights;
  const size_t fixed = 1024 + s.stages * stage + size_t(s.units) * 16 + (2 * kMostStages + 2) * 8;
  const int room = int((kMostShared - fixed) / weights);
  s.make_resident(room < s.blocks_of_k ? room : s.blocks_of_k);
  layout.shared_bytes = fixed + s.resident() * weights;
  layout.streamed_bytes = size_t(s.tiles) * s.blocks_of_k * weights;
  check_resident(kernel_of<__nv_bfloat16>(s), layout);
  return layout;
}

template <typename T>
cudaError_t launch_persistent_forward(const PersistentForward<T>& args,
                                      const StreamedLayout& layout, cudaStream_t stream) {
  StreamedForwardParams<T> params{args, layout.stream};
  dispatch_shape(layout.stream, [&]<int kQuads, int kTiles>() {
    rnn_stream_begin_kernel<T, kQuads><<<1024, 256, 0, stream>>>(params);
  });
  if (auto e = cudaGetLastError()) return e;
  return launch_resident_blocks(kernel_of<T>(layout.stream), layout, &params, stream);
}

template cudaError_t launch_persistent_forward<__nv_bfloat16>(
    const PersistentForward<__nv_bfloat16>&, const StreamedLayout&, cudaStream_t);
template cudaError_t launch_persistent_forward<__half>(const PersistentForward<__half>&,
                                                       const StreamedLayout&, cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
