#include "ridgeline/cuda/recurrent/persistent_forward.cuh"
#include "ridgeline/cuda/recurrent/persistent_launch.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

// The GPU function for a layout; null if none was built.
template <typename T, Cell kCell>
const void* kernel_of(const PersistentLayout& layout) {
  const void* found = nullptr;
  const auto try_kernel = [&]<int kRowTiles, int kHeld>() {
    if (layout.row_tiles != kRowTiles || layout.held_chunks != kHeld || layout.group_steps > 0) {
      return;
    }
    found = reinterpret_cast<const void*>(
        rnn_forward_persistent_kernel<T, kCell, BlockProduct<T, kHeld, kRowTiles>, 1, kMostLayers>);
  };
  const auto try_groups = [&]<int kSteps>() {
    if (layout.group_steps != kSteps) return;
    found = reinterpret_cast<const void*>(
        rnn_forward_persistent_kernel<T, kCell, GroupProduct<T, kSteps>, 2, kMostLayers>);
  };
  if constexpr (kCell == Cell::lstm && Handed<T>::kPlanes > 1) {
    try_kernel.template operator()<2, 2>();
  } else if constexpr (kCell == Cell::lstm) {
    try_kernel.template operator()<2, 4>();
    try_kernel.template operator()<4, 4>();
    try_groups.template operator()<16>();
    try_groups.template operator()<32>();
  } else if constexpr (kCell != Cell::gru) {
    try_kernel.template operator()<1, (Handed<T>::kPlanes > 1 ? 2 : 8)>();
  }
  return found;
}

template <typename T>
const void* kernel_of(Cell cell, const PersistentLayout& layout) {
  return dispatch_cell(cell, [&]<Cell kCell>() { return kernel_of<T, kCell>(layout); });
}

}  // namespace

PersistentLayout persistent_stack_layout(Cell cell, int planes, int layers, int hidden, int batch,
                                         int sms, PersistentForm form) {
  PersistentLayout layout;
  if (cell == Cell::gru) {
    layout.refusal = "a gru's last gate takes the sums with x and with h apart";
    return layout;
  }
  if (layers > kMostLayers) {
    layout.refusal = "more layers than a wavefront takes";
    return layout;
  }
  const bool gated = cell == Cell::lstm, groups = form == PersistentForm::groups;
  if (groups && (!gated || planes > 1)) {
    layout.refusal = "there is no such form of this layer";
    return layout;
  }
  layout.shape.layers = layers;
  if (groups) {
    layout.shape.panel_samples = kWgmmaPanelSamples;
    layout.group_steps = hidden <= 256 ? 16 : 32;
    layout.shape.product_floats = group_product_floats(layout.group_steps);
  }
  const bool wide = groups || gated && planes == 1 && layers * ((hidden + 7) / 8) > sms;
  layout.shape.units = gated && !wide ? 8 : 16;
  layout.row_tiles = gated ? (wide ? 4 : 2) : 1;
  layout.held_chunks = planes > 1 ? 2 : gated ? 4 : 8;
  complete_layout(layout, planes, hidden, (hidden + 7) / 8, batch, sms,
                  {state_floats(cell), size_t(8) * cell_gates(cell), 0});
  if (!layout.refusal.empty()) return layout;
  check_resident(
      planes > 1 ? kernel_of<float>(cell, layout) : kernel_of<__nv_bfloat16>(cell, layout), layout);
  return layout;
}

template <typename T>
cudaError_t launch_persistent_stack(const PersistentStack<T>& args, const PersistentLayout& layout,
                                    cudaStream_t stream) {
  PersistentForwardParams<T, kMostLayers> params{};
  params.shape = layout.shape;
  for (int layer = 0; layer < layout.shape.layers; ++layer) {
    const PersistentForward<T>& one = params.layers[layer] = args.layers[layer];
    if (auto e = begin_exchange<T, true>(layout.shape, one.sequence, one.h0, one.first_sample,
                                         one.samples,
                                         one.exchange + layer * layout.shape.step_words, stream)) {
      return e;
    }
  }
  return launch_resident_blocks(kernel_of<T>(args.layers[0].cell, layout), layout, &params, stream);
}

template cudaError_t launch_persistent_stack<__nv_bfloat16>(const PersistentStack<__nv_bfloat16>&,
                                                            const PersistentLayout&, cudaStream_t);
template cudaError_t launch_persistent_stack<__half>(const PersistentStack<__half>&,
                                                     const PersistentLayout&, cudaStream_t);
template cudaError_t launch_persistent_stack<float>(const PersistentStack<float>&,
                                                    const PersistentLayout&, cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
