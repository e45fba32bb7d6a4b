#include "ridgeline/cuda/recurrent/persistent_backward.cuh"
#include "ridgeline/cuda/recurrent/persistent_launch.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

constexpr int kClusterBlocks = 4, kPairBlocks = 2, kLargeCluster = 3;

// The GPU function for a layout; null if none was built.
template <typename T, Cell kCell>
const void* kernel_of(const PersistentLayout& layout) {
  const void* found = nullptr;
  const auto try_kernel = [&]<int kCluster, int kRowTiles, int kHeld, int kOwn>() {
    if (layout.row_tiles != kRowTiles || layout.held_chunks != kHeld ||
        layout.shape.cluster != kCluster) {
      return;
    }
    using Product = BlockProduct<T, kHeld, kRowTiles>;
    found = reinterpret_cast<const void*>(
        rnn_backward_persistent_kernel<T, kCell, kCluster, Product, kOwn>);
  };
  const auto try_large = [&]<typename Product>() {
    if (layout.group_steps == 0) return;
    found = reinterpret_cast<const void*>(
        rnn_backward_persistent_kernel<T, kCell, kLargeCluster, Product, 2>);
  };
  constexpr bool kGated = cell_gates(kCell) > 1;
  if constexpr (Handed<T>::kPlanes > 1) {
    try_kernel.template operator()<1, 1, 2, 1>();
    if constexpr (kGated) {
      try_kernel.template operator()<kClusterBlocks, 2, 2, 1>();
      try_kernel.template operator()<kClusterBlocks, 3, 1, 1>();
    }
  } else {
    try_kernel.template operator()<1, 1, 8, 1>();
    if constexpr (kGated) {
      try_kernel.template operator()<kClusterBlocks, 2, 4, 1>();
      try_kernel.template operator()<kClusterBlocks, 3, 4, 1>();
      try_kernel.template operator()<kClusterBlocks, 4, 4, 1>();
      try_kernel.template operator()<kClusterBlocks, 6, 2, 2>();
      try_kernel.template operator()<kPairBlocks, 2, 6, 1>();
      try_kernel.template operator()<1, 2, 6, 2>();
      if constexpr (kCell == Cell::gru) {
        try_large.template operator()<LargeProduct<T, 88, true>>();
      }
    } else {
      try_kernel.template operator()<1, 2, 8, 2>();
    }
  }
  return found;
}

template <typename T>
const void* kernel_of(Cell cell, const PersistentLayout& layout) {
  return dispatch_cell(cell, [&]<Cell kCell>() { return kernel_of<T, kCell>(layout); });
}

struct Kernel {
  int row_tiles, held_chunks;
};

// `resident` is how many blocks could be resident.
PersistentLayout backward_layout(Cell cell, int planes, int hidden, int batch, int sms, int units,
                                 int cluster, const Kernel& kernel, int& resident) {
  PersistentLayout layout;
  layout.shape.units = units;
  layout.row_tiles = kernel.row_tiles;
  layout.held_chunks = kernel.held_chunks;
  layout.shape.cluster = cluster;
  if (cluster == kLargeCluster) {
    layout.shape.cluster_units = 64;
    layout.group_steps = kLargeChunks * kLargeChunkSteps;
    layout.shape.product_floats = kLargeFloats;
  }
  complete_layout(layout, planes, hidden, cell_gates(cell) * ((hidden + 7) / 8), batch, sms,
                  {state_floats(cell), (planes > 1 ? 8 : 4) * size_t(backward_loads(cell)),
                   size_t(cluster) * kPanelSamples * units * sizeof(float)});
  if (!layout.refusal.empty()) return layout;
  if (layout.group_steps > 0) {  // the sums in flight
    layout.l2_workspace_bytes =
        size_t(layout.blocks()) * kL2SumsRing * cluster * kPanelSamples * units * 2 * sizeof(float);
  }
  resident = check_resident(
      planes > 1 ? kernel_of<float>(cell, layout) : kernel_of<__nv_bfloat16>(cell, layout), layout);
  return layout;
}

PersistentLayout cluster_layout(Cell cell, int planes, int hidden, int batch, int sms) {
  constexpr Kernel kHalves[] = {{2, 4}, {3, 4}, {4, 4}, {6, 2}}, kPlanes[] = {{2, 2}, {3, 1}};
  PersistentLayout layout;
  // Clusters may not fill the GPU (30 of four blocks on an H200); fewer groups of samples are then
  // used, or more units per block.
  const auto try_kernel = [&](const Kernel& kernel) {
    const int units = 16 * kernel.row_tiles / kClusterBlocks;
    int resident = 0;
    layout =
        backward_layout(cell, planes, hidden, batch, sms, units, kClusterBlocks, kernel, resident);
    if (!layout.refusal.empty() && resident > 0 && resident < layout.blocks()) {
      layout = backward_layout(cell, planes, hidden, batch, resident, units, kClusterBlocks, kernel,
                               resident);
    }
    return layout.refusal.empty();
  };
  if (planes > 1) {
    for (const Kernel& kernel : kPlanes) {
      if (try_kernel(kernel)) break;
    }
  } else {
    for (const Kernel& kernel : kHalves) {
      if (try_kernel(kernel)) break;
    }
  }
  return layout;
}

}  // namespace

PersistentLayout persistent_backward_layout(Cell cell, int planes, int hidden, int batch, int sms,
                                            PersistentForm form) {
  PersistentLayout layout;
  const bool gated = cell_gates(cell) > 1;
  if (form == PersistentForm::clusters) {
    if (gated) return cluster_layout(cell, planes, hidden, batch, sms);
    layout.refusal = "the inner extent of a cell with one gate needs no sharing";
    return layout;
  }
  if (form == PersistentForm::large && cell == Cell::gru && planes == 1) {
    int resident = 0;
    return backward_layout(cell, planes, hidden, batch, sms, 24, kLargeCluster, {4, 0}, resident);
  }
  if (form == PersistentForm::pairs && gated && planes == 1) {
    int resident = 0;
    return backward_layout(cell, planes, hidden, batch, sms, 16, kPairBlocks, {2, 6}, resident);
  }
  if (form == PersistentForm::groups || form == PersistentForm::large ||
      form == PersistentForm::pairs) {
    layout.refusal = "there is no such form of this layer";
    return layout;
  }
  const int units = units_for(hidden, sms);
  int resident = 0;
  const auto one_block = [&](int units, const Kernel& kernel) {
    return backward_layout(cell, planes, hidden, batch, sms, units, 1, kernel, resident);
  };
  if (form == PersistentForm::wide) {  // half the blocks read each gradient
    if (gated && planes == 1) return one_block(32, {2, 6});
    layout.refusal = "there is no such form of this layer";
    return layout;
  }
  if (units <= 16 || gated || planes > 1) return one_block(16, {1, planes > 1 ? 2 : 8});
  if (units <= 32) return one_block(units, {2, 8});
  layout.refusal = "more hidden units than the GPU has room for";
  return layout;
}

template <typename T>
cudaError_t launch_persistent_backward(const PersistentBackward<T>& args,
                                       const PersistentLayout& layout, cudaStream_t stream) {
  if (auto e = begin_exchange<T, false>(layout.shape, args.sequence, nullptr, args.first_sample,
                                        args.samples, args.exchange, stream)) {
    return e;
  }
  if (layout.group_steps > 0) {
    if (auto e = cudaMemsetAsync(args.l2_workspace, 0, layout.l2_workspace_bytes, stream)) return e;
  }
  PersistentBackwardParams<T> params{args, layout.shape};
  return launch_resident_blocks(kernel_of<T>(args.cell, layout), layout, &params, stream);
}

template cudaError_t launch_persistent_backward<__nv_bfloat16>(
    const PersistentBackward<__nv_bfloat16>&, const PersistentLayout&, cudaStream_t);
template cudaError_t launch_persistent_backward<__half>(const PersistentBackward<__half>&,
                                                        const PersistentLayout&, cudaStream_t);
template cudaError_t launch_persistent_backward<float>(const PersistentBackward<float>&,
                                                       const PersistentLayout&, cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
