#include "ridgeline/cuda/recurrent/persistent_forward.cuh"
#include "ridgeline/cuda/recurrent/persistent_launch.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

// Calls f with the kernel of a layout.
template <typename T, typename F>
cudaError_t with_kernel(Cell cell, const PersistentLayout& layout, F f) {
  const auto call = [&]<Cell kCell, int kRowTiles, int kPieces>() {
    return f(reinterpret_cast<const void*>(
        layout.own == 1 ? rnn_forward_persistent_kernel<T, kCell, kRowTiles, kPieces, 1>
                        : rnn_forward_persistent_kernel<T, kCell, kRowTiles, kPieces, 4>));
  };
  return dispatch_cell(cell, [&]<Cell kCell>() {
    if constexpr (cell_gates(kCell) > 1) {
      if (layout.row_tiles == 4) return call.template operator()<kCell, 4, 4>();
      if (layout.pairs <= 2) return call.template operator()<kCell, 2, 2>();
      return call.template operator()<kCell, 2, 4>();
    } else {
      if (layout.pairs <= 4) return call.template operator()<kCell, 1, 4>();
      return call.template operator()<kCell, 1, 8>();
    }
  });
}

// With room for so many blocks; `resident` is how many could be.
PersistentLayout forward_layout(Cell cell, int hidden, int batch, int processors, bool wide,
                                int& resident) {
  PersistentLayout layout;
  const bool gated = cell_gates(cell) > 1;
  if (wide && !gated) {
    layout.refusal = "a cell with one gate has 16 units a block already";
    return layout;
  }
  layout.units = gated && !wide ? 8 : 16;
  layout.row_tiles = gated ? (wide ? 4 : 2) : 1;
  layout.tiles = (hidden + layout.units - 1) / layout.units;
  layout.octets = layout.tiles * layout.units / 8;
  const int pieces = (layout.octets + 3) / 4;
  layout.pairs = (pieces + kWarps - 1) / kWarps;
  if (layout.tiles > processors || layout.pairs > (gated ? 4 : 8)) {
    layout.refusal = "the recurrent weights do not fit in the registers of the GPU";
    return layout;
  }
  share_items(layout, batch, processors);
  layout.own = layout.group_batch * layout.units <= kThreads ? 1 : 4;
  if (layout.group_batch * layout.units > 4 * kThreads) {
    layout.refusal = "too many items for one pass";
    return layout;
  }
  const int pitch = 16 * layout.row_tiles + 4;
  share_memory(layout, kWarps * 8 * layout.item_tiles * pitch, 0);
  layout.slot_bytes = size_t(pieces) * size_t(layout.item_tiles) * 32 * sizeof(uint4);
  with_kernel<__nv_bfloat16>(cell, layout, [&](const void* kernel) {
    resident = check_resident(kernel, kThreads, layout);
    return cudaSuccess;
  });
  return layout;
}

}  // namespace

PersistentLayout persistent_forward_layout(Cell cell, int hidden, int batch, int processors,
                                           bool wide) {
  int resident = 0;
  return forward_layout(cell, hidden, batch, processors, wide, resident);
}

template <typename T>
cudaError_t launch_persistent_forward(const PersistentForward<T>& args,
                                      const PersistentLayout& layout, cudaStream_t stream) {
  PersistentForwardParams<T> params{args,
                                    layout.tiles,
                                    layout.groups,
                                    layout.group_batch,
                                    layout.octets,
                                    layout.item_tiles,
                                    layout.buffers,
                                    layout.pause,
                                    int64_t(layout.slot_bytes / sizeof(uint4))};
  const int64_t blocks = (params.slot * layout.groups * args.sequence.steps + 255) / 256;
  rnn_exchange_begin_kernel<T><<<unsigned(blocks < 2048 ? blocks : 2048), 256, 0, stream>>>(params);
  if (auto e = cudaGetLastError()) return e;
  return with_kernel<T>(args.cell, layout, [&](const void* kernel) {
    return launch_resident_blocks(kernel, layout, kThreads, &params, stream);
  });
}

template cudaError_t launch_persistent_forward<__nv_bfloat16>(
    const PersistentForward<__nv_bfloat16>&, const PersistentLayout&, cudaStream_t);
template cudaError_t launch_persistent_forward<__half>(const PersistentForward<__half>&,
                                                       const PersistentLayout&, cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
