#include "ridgeline/cuda/recurrent/persistent_launch.cuh"
#include "ridgeline/cuda/recurrent/weight_streaming_begin.cuh"
#include "ridgeline/cuda/recurrent/weight_streaming_forward.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

// Calls f<cell, quads, samples> for a shape.
template <typename F>
auto dispatch_shape(Cell cell, const StreamShape& shape, F f) {
  if (cell == Cell::gru) {
    if (shape.samples == 32) return f.template operator()<Cell::gru, 6, 32>();
    if (shape.samples == 64) return f.template operator()<Cell::gru, 6, 64>();
    return f.template operator()<Cell::gru, 6, 128>();
  }
  if (shape.samples == 64) {
    if (shape.units == 16) return f.template operator()<Cell::lstm, 4, 64>();
    return f.template operator()<Cell::lstm, 5, 64>();
  }
  switch (shape.units) {
    case 16:
      return f.template operator()<Cell::lstm, 4, 128>();
    case 20:
      return f.template operator()<Cell::lstm, 5, 128>();
    case 32:
      return f.template operator()<Cell::lstm, 8, 128>();
    default:
      return f.template operator()<Cell::lstm, 10, 128>();
  }
}

template <typename T>
const void* kernel_of(Cell cell, const StreamShape& shape) {
  return dispatch_shape(cell, shape, [&]<Cell kCell, int kQuads, int kSamples>() {
    return reinterpret_cast<const void*>(
        rnn_forward_weight_streaming_kernel<T, kCell, kQuads, kSamples>);
  });
}

// Chooses the hidden units per block, and how the samples are distributed.
void choose_shape(StreamShape& s, Cell cell, int hidden, int batch, int sms) {
  if (cell == Cell::gru) {
    s.samples = batch <= 32 ? 32 : batch <= 64 ? 64 : 128;
    s.units = 24;
  } else {
    s.samples = batch <= 64 ? 64 : 128;
    s.groups = batch <= 128 ? 1 : kStreamGroups;
    for (const int units : {16, 20, 32, 40}) {
      s.units = units;
      if ((hidden + units - 1) / units * s.groups <= sms) break;
      if (units == 20 && s.groups == 1) break;
    }
  }
  s.tiles = (hidden + s.units - 1) / s.units;
}

}  // namespace

WeightStreamingLayout weight_streaming_forward_layout(Cell cell, int planes, int hidden, int batch,
                                                      int sms) {
  WeightStreamingLayout layout;
  StreamShape& s = layout.stream;
  const int gates = cell_gates(cell);
  if (gates == 1 || planes > 1 || hidden % 4 != 0) {
    layout.refusal = "takes LSTMs and GRUs in bf16 and fp16 whose hidden units come in fours";
    return layout;
  }
  choose_shape(s, cell, hidden, batch, sms);
  layout.shape.tiles = s.tiles;
  layout.shape.groups = s.groups;
  if (layout.blocks() > sms) {
    layout.refusal = "more hidden units than the GPU has room for";
    return layout;
  }
  s.blocks_of_k = (hidden + kStreamWidth - 1) / kStreamWidth;
  s.stages = s.samples == 32 ? 8 : s.samples == 64 ? 6 : s.units <= 24 ? 5 : 4;
  const size_t weights = size_t(gates) * s.units * 128;
  const size_t stage = size_t(s.samples) * 128 + weights;
  const size_t fixed = 1024 + s.stages * stage + size_t(s.units) * 16 + (2 * kMostStages + 2) * 8;
  const int room = int((kMostShared - fixed) / weights);
  s.make_resident(room < s.blocks_of_k ? room : s.blocks_of_k);
  layout.shared_bytes = fixed + s.resident() * weights;
  layout.l2_workspace_bytes = size_t(s.tiles) * s.blocks_of_k * weights;
  check_resident(kernel_of<__nv_bfloat16>(cell, s), layout);
  return layout;
}

template <typename T>
cudaError_t launch_persistent_forward(const PersistentForward<T>& args,
                                      const WeightStreamingLayout& layout, cudaStream_t stream) {
  WeightStreamingForwardParams<T> params{args, layout.stream};
  dispatch_shape(args.cell, layout.stream, [&]<Cell kCell, int kQuads, int kSamples>() {
    rnn_stream_begin_kernel<T, kCell, kQuads><<<1024, 256, 0, stream>>>(params);
  });
  if (auto e = cudaGetLastError()) return e;
  return launch_resident_blocks(kernel_of<T>(args.cell, layout.stream), layout, &params, stream);
}

template cudaError_t launch_persistent_forward<__nv_bfloat16>(
    const PersistentForward<__nv_bfloat16>&, const WeightStreamingLayout&, cudaStream_t);
template cudaError_t launch_persistent_forward<__half>(const PersistentForward<__half>&,
                                                       const WeightStreamingLayout&, cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
