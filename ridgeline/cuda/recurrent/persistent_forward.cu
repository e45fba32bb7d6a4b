#include "ridgeline/cuda/recurrent/cluster_forward.h"
#include "ridgeline/cuda/recurrent/persistent_forward.cuh"
#include "ridgeline/cuda/recurrent/persistent_launch.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

// The GPU function for a layout; null if none was built.
template <typename T, Cell kCell>
const void* kernel_of(const PersistentLayout& layout) {
  const void* found = nullptr;
  const auto try_kernel = [&]<int kRowTiles, int kHeld, int kOwn>() {
    if (layout.row_tiles != kRowTiles || layout.held_chunks != kHeld || layout.group_steps > 0) {
      return;
    }
    found = reinterpret_cast<const void*>(
        rnn_forward_persistent_kernel<T, kCell, BlockProduct<T, kHeld, kRowTiles>, kOwn>);
  };
  const auto try_large = [&]<typename Product>() {
    if (layout.group_steps != kLargeChunks * kLargeChunkSteps) return;
    found = reinterpret_cast<const void*>(rnn_forward_persistent_kernel<T, kCell, Product, 2>);
  };
  const auto try_groups = [&]<int kSteps>() {
    if (layout.group_steps != kSteps) return;
    found = reinterpret_cast<const void*>(
        rnn_forward_persistent_kernel<T, kCell, GroupProduct<T, kSteps>, 2>);
  };
  if constexpr (Handed<T>::kPlanes > 1) {
    try_kernel.template operator()<(cell_gates(kCell) > 1 ? 2 : 1), 2, 1>();
  } else if constexpr (cell_gates(kCell) == 1) {
    try_kernel.template operator()<1, 8, 1>();
    try_kernel.template operator()<2, 8, 2>();
  } else {
    try_kernel.template operator()<2, 2, 1>();
    try_kernel.template operator()<2, 4, 1>();
    try_groups.template operator()<8>();
    try_groups.template operator()<16>();
    try_groups.template operator()<32>();
    if constexpr (kCell == Cell::gru) {
      try_kernel.template operator()<3, 2, 1>();
      try_kernel.template operator()<3, 4, 1>();
      try_kernel.template operator()<4, 4, 2>();
      try_large.template operator()<LargeProduct<T, 72, false>>();
    } else {
      try_kernel.template operator()<4, 2, 1>();
      try_kernel.template operator()<4, 4, 1>();
      try_kernel.template operator()<5, 3, 2>();
    }
  }
  return found;
}

template <typename T>
const void* kernel_of(Cell cell, const PersistentLayout& layout) {
  return dispatch_cell(cell, [&]<Cell kCell>() { return kernel_of<T, kCell>(layout); });
}

// Chooses the units per block and the GPU function for them; 0 if there is none.
void choose_forward(PersistentLayout& layout, Cell cell, int hidden, int sms, bool wide) {
  const int gates = cell_gates(cell), held = hidden <= 2 * kWarps * 32 ? 2 : 4;
  const auto take = [&](int units, int row_tiles, int held) {
    layout.shape.units = units;
    layout.row_tiles = row_tiles;
    layout.held_chunks = held;
  };
  if (gates == 1) {
    if (!wide) return take(16, 1, 8);
    const int units = units_for(hidden, sms);
    if (units > 16 && units <= 32) take(units, 2, 8);
  } else if (!wide) {
    // gru has room for 10 units in 32 rows.
    take(gates == 3 && (hidden + 7) / 8 > sms ? 10 : 8, 2, held);
  } else if ((hidden + 15) / 16 <= sms) {
    take(16, gates, held);
  } else {
    take(20, gates + 1, gates == 4 ? 3 : 4);
  }
}

// Lays out products by wgmma with 16 units per block.
void choose_groups(PersistentLayout& layout, Cell cell, int hidden) {
  if (cell_gates(cell) == 1) return;
  layout.shape.units = 16;
  layout.shape.panel_samples = kWgmmaPanelSamples;
  layout.row_tiles = 4;
  layout.group_steps = hidden <= 256 ? 8 : hidden <= 512 ? 16 : 32;
  layout.shape.product_floats = group_product_floats(layout.group_steps);
}

// Lays out GRUs whose weights fill registers and shared memory, with 20 units per block.
void choose_large(PersistentLayout& layout, Cell cell) {
  if (cell != Cell::gru) return;
  layout.shape.units = 20;
  layout.row_tiles = 4;
  layout.group_steps = kLargeChunks * kLargeChunkSteps;
  layout.shape.product_floats = kLargeFloats;
}

}  // namespace

PersistentLayout persistent_forward_layout(Cell cell, int planes, int hidden, int batch, int sms,
                                           PersistentForm form) {
  if (form == PersistentForm::clusters) return cluster_forward_layout(cell, planes, hidden, batch);
  PersistentLayout layout;
  if (form == PersistentForm::groups) {
    choose_groups(layout, cell, hidden);
  } else if (form == PersistentForm::large) {
    choose_large(layout, cell);
  } else {
    choose_forward(layout, cell, hidden, sms, form == PersistentForm::wide);
  }
  if (planes > 1) {  // built for one form only
    if (form != PersistentForm::narrow) layout.shape.units = 0;
    layout.held_chunks = 2;
  }
  if (layout.shape.units == 0) {
    layout.refusal = "there is no such form of this layer";
    return layout;
  }
  complete_layout(layout, planes, hidden, (hidden + 7) / 8, batch, sms,
                  {state_floats(cell), size_t(8) * cell_gates(cell), 0});
  if (!layout.refusal.empty()) return layout;
  check_resident(
      planes > 1 ? kernel_of<float>(cell, layout) : kernel_of<__nv_bfloat16>(cell, layout), layout);
  return layout;
}

template <typename T>
cudaError_t launch_persistent_forward(const PersistentForward<T>& args,
                                      const PersistentLayout& layout, cudaStream_t stream) {
  if constexpr (Handed<T>::kPlanes == 1) {
    if (layout.shape.cluster > 1) return launch_cluster_forward<T>(args, layout, stream);
  }
  if (auto e = begin_exchange<T, true>(layout.shape, args.sequence, args.h0, args.first_sample,
                                       args.samples, args.exchange, stream)) {
    return e;
  }
  PersistentForwardParams<T, 1> params{{args}, layout.shape};
  return launch_resident_blocks(kernel_of<T>(args.cell, layout), layout, &params, stream);
}

template cudaError_t launch_persistent_forward<__nv_bfloat16>(
    const PersistentForward<__nv_bfloat16>&, const PersistentLayout&, cudaStream_t);
template cudaError_t launch_persistent_forward<__half>(const PersistentForward<__half>&,
                                                       const PersistentLayout&, cudaStream_t);
template cudaError_t launch_persistent_forward<float>(const PersistentForward<float>&,
                                                      const PersistentLayout&, cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
