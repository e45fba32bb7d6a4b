#include "ridgeline/cuda/recurrent/persistent_backward.cuh"
#include "ridgeline/cuda/recurrent/persistent_launch.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

// Calls f with the kernel of a layout.
template <typename T, typename F>
cudaError_t with_kernel(Cell cell, const PersistentLayout& layout, F f) {
  const auto call = [&]<Cell kCell, typename Rows, int kPieces>() {
    return f(reinterpret_cast<const void*>(
        layout.own == 1 ? rnn_backward_persistent_kernel<T, kCell, Rows, kPieces, 1>
                        : rnn_backward_persistent_kernel<T, kCell, Rows, kPieces, 4>));
  };
  return dispatch_cell(cell, [&]<Cell kCell>() {
    if constexpr (cell_gates(kCell) > 1) {
      using Two = BackwardRows<4, 2>;
      using Three = BackwardRows<4, 3>;
      if (layout.row_tiles == 3) return call.template operator()<kCell, Three, 4>();
      if (layout.row_tiles == 2) return call.template operator()<kCell, Two, 4>();
    }
    using One = BackwardRows<1, 1>;
    if (layout.pairs <= 4) return call.template operator()<kCell, One, 4>();
    return call.template operator()<kCell, One, 8>();
  });
}

PersistentLayout backward_layout(Cell cell, int hidden, int batch, int processors, int row_tiles,
                                 int& resident) {
  PersistentLayout layout;
  layout.row_tiles = row_tiles;
  layout.cluster = row_tiles > 1 ? 4 : 1;
  layout.units = 16 * row_tiles / layout.cluster;
  const int each = layout.units * layout.cluster, lanes = layout.units == 8 ? 8 : 16;
  layout.tiles = (hidden + each - 1) / each * layout.cluster;
  layout.octets = cell_gates(cell) * ((hidden + 7) / 8);
  const int pieces = (layout.octets + 3) / 4;
  const int of_block = (pieces + layout.cluster - 1) / layout.cluster;
  layout.pairs = (of_block + kWarps - 1) / kWarps;
  if (layout.tiles > processors || layout.pairs > (row_tiles > 1 ? 4 : 8)) {
    layout.refusal = "the recurrent weights do not fit in the registers of the GPU";
    return layout;
  }
  share_items(layout, batch, processors);
  layout.own = layout.group_batch * lanes <= kThreads ? 1 : 4;
  if (layout.group_batch * lanes > 4 * kThreads) {
    layout.refusal = "too many items for one pass";
    return layout;
  }
  const int pitch = 16 * row_tiles + 4, items = 8 * layout.item_tiles;
  const int received = row_tiles > 1 ? kReceiveRing * layout.cluster * items * layout.units : 0;
  share_memory(layout, kWarps * items * pitch,
               size_t(received) * sizeof(float) + kReceiveRing * sizeof(ByteBarrier));
  layout.slot_bytes = size_t(pieces) * size_t(layout.item_tiles) * 32 * sizeof(uint4);
  with_kernel<__nv_bfloat16>(cell, layout, [&](const void* kernel) {
    resident = check_resident(kernel, kThreads, layout);
    return cudaSuccess;
  });
  return layout;
}

}  // namespace

PersistentLayout persistent_backward_layout(Cell cell, int hidden, int batch, int processors,
                                            bool clusters) {
  int resident = 0;
  if (!clusters) return backward_layout(cell, hidden, batch, processors, 1, resident);
  PersistentLayout layout;
  if (cell_gates(cell) == 1) {
    layout.refusal = "the inner extent of a cell with one gate needs no sharing";
    return layout;
  }
  // Clusters may not fill the GPU (30 of four blocks on an H200): fewer groups of items then, or
  // more units a block.
  for (const int row_tiles : {2, 3}) {
    layout = backward_layout(cell, hidden, batch, processors, row_tiles, resident);
    if (!layout.refusal.empty() && resident > 0 && resident < layout.blocks()) {
      layout = backward_layout(cell, hidden, batch, resident, row_tiles, resident);
    }
    if (layout.refusal.empty()) break;
  }
  return layout;
}

template <typename T>
cudaError_t launch_persistent_backward(const PersistentBackward<T>& args,
                                       const PersistentLayout& layout, cudaStream_t stream) {
  const int pieces = (layout.octets + 3) / 4;
  PersistentBackwardParams<T> params{args,
                                     layout.tiles,
                                     layout.group_batch,
                                     layout.octets,
                                     layout.item_tiles,
                                     layout.buffers,
                                     layout.pause,
                                     (pieces + layout.cluster - 1) / layout.cluster,
                                     int64_t(layout.slot_bytes / sizeof(uint4))};
  if (auto e = cudaMemsetAsync(args.exchange, 0xff, layout.exchange_bytes(args.sequence.steps),
                               stream)) {
    return e;
  }
  return with_kernel<T>(args.cell, layout, [&](const void* kernel) {
    return launch_resident_blocks(kernel, layout, kThreads, &params, stream);
  });
}

template cudaError_t launch_persistent_backward<__nv_bfloat16>(
    const PersistentBackward<__nv_bfloat16>&, const PersistentLayout&, cudaStream_t);
template cudaError_t launch_persistent_backward<__half>(const PersistentBackward<__half>&,
                                                        const PersistentLayout&, cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
