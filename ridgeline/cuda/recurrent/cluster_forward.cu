#include "ridgeline/cuda/recurrent/cluster_forward.h"
#include "ridgeline/cuda/recurrent/cluster_product.cuh"
#include "ridgeline/cuda/recurrent/persistent_forward.cuh"
#include "ridgeline/cuda/recurrent/persistent_launch.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

constexpr int kMostPanels = 8;  // per cluster, which fit in shared memory

// The GPU function for a layout of 8 or 16 units per block, or of up to 32.
template <typename T, Cell kCell>
const void* kernel_of(const PersistentLayout& layout) {
  if constexpr (cell_gates(kCell) == 1) {
    return nullptr;
  } else {
    return layout.held_chunks == 4
               ? reinterpret_cast<const void*>(
                     rnn_forward_persistent_kernel<T, kCell, ClusterProduct<T, 4, 1>, 1>)
               : reinterpret_cast<const void*>(
                     rnn_forward_persistent_kernel<T, kCell, ClusterProduct<T, 8, 2>, 1>);
  }
}
template <typename T>
const void* kernel_of(Cell cell, const PersistentLayout& layout) {
  return dispatch_cell(cell, [&]<Cell kCell>() { return kernel_of<T, kCell>(layout); });
}

cudaError_t allow_large_clusters(const void* kernel) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
}

// Distributes the samples over this many clusters, and sizes the shared memory.
void fill_clusters(PersistentLayout& layout, Cell cell, int batch, int clusters) {
  PassShape& s = layout.shape;
  const int tiles = (batch + kLayerPanelSamples - 1) / kLayerPanelSamples;
  const int wanted = (tiles + clusters - 1) / clusters;
  const int panels = wanted < kMostPanels ? wanted : kMostPanels;
  s.group_samples = kLayerPanelSamples * panels;
  s.groups = (tiles + panels - 1) / panels;
  if (s.groups > clusters) s.groups = clusters;
  s.product_floats = cluster_slot_floats(2 * layout.held_chunks, panels);
  const int sums = s.buffers * s.sum_parts * kLayerPanelSamples * (16 * layout.row_tiles + 4);
  const int of_thread = panels * state_floats(cell) + s.depth * 2 * cell_gates(cell);
  layout.shared_bytes = size_t(s.product_floats + sums + of_thread * kGateThreads) * sizeof(float);
}

}  // namespace

PersistentLayout cluster_forward_layout(Cell cell, int planes, int hidden, int batch) {
  PersistentLayout layout;
  PassShape& s = layout.shape;
  constexpr int kVec8s = 8 * kLayerBlocks;
  s.units = (hidden + kVec8s - 1) / kVec8s * 8;
  if (cell_gates(cell) == 1 || planes > 1 || s.units > 32) {
    layout.refusal = "there is no such form of this layer";
    return layout;
  }
  layout.row_tiles = s.units <= 16 ? 4 : 8;
  layout.held_chunks = s.warp_chunks = layout.row_tiles;
  s.pair_bits = s.units <= 8 ? 2 : s.units <= 16 ? 3 : 4;
  s.cluster = s.tiles = kLayerBlocks;
  s.cluster_units = s.units * kLayerBlocks;
  s.panel_samples = kLayerPanelSamples;
  s.sum_parts = 2;
  s.depth = kFetchDepth;
  const void* kernel = kernel_of<__nv_bfloat16>(cell, layout);
  if (const auto e = allow_large_clusters(kernel)) {
    cudaGetLastError();
    layout.refusal = cudaGetErrorString(e);
    return layout;
  }
  fill_clusters(layout, cell, batch, (batch + kLayerPanelSamples - 1) / kLayerPanelSamples);
  // Clusters may not fill the GPU; fewer of them are then used, with more samples each.
  const int resident = check_resident(kernel, layout) / kLayerBlocks;
  if (!layout.refusal.empty() && resident > 0) {
    layout.refusal.clear();
    fill_clusters(layout, cell, batch, resident);
    check_resident(kernel, layout);
  }
  return layout;
}

template <typename T>
cudaError_t launch_cluster_forward(const PersistentForward<T>& args, const PersistentLayout& layout,
                                   cudaStream_t stream) {
  const void* kernel = kernel_of<T>(args.cell, layout);
  if (const auto e = allow_large_clusters(kernel)) return e;
  PersistentForwardParams<T, 1> params{{args}, layout.shape};
  return launch_resident_blocks(kernel, layout, &params, stream);
}

template cudaError_t launch_cluster_forward<__nv_bfloat16>(const PersistentForward<__nv_bfloat16>&,
                                                           const PersistentLayout&, cudaStream_t);
template cudaError_t launch_cluster_forward<__half>(const PersistentForward<__half>&,
                                                    const PersistentLayout&, cudaStream_t);

}  // namespace ridgeline::cuda::recurrent
