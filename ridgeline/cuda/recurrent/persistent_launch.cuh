#pragma once

#include "ridgeline/cuda/recurrent/pass.cuh"

// Code that the launchers of both directions share.
namespace ridgeline::cuda::recurrent {

// Calls f<cell>.
template <typename F>
auto dispatch_cell(Cell cell, F f) {
  switch (cell) {
    case Cell::rnn_relu:
      return f.template operator()<Cell::rnn_relu>();
    case Cell::rnn_tanh:
      return f.template operator()<Cell::rnn_tanh>();
    case Cell::gru:
      return f.template operator()<Cell::gru>();
    case Cell::lstm:
      break;
  }
  return f.template operator()<Cell::lstm>();
}

// Launches cooperatively, and in clusters if the layout has them.
inline cudaError_t launch_resident_blocks(const void* kernel, const PersistentLayout& layout,
                                          void* params, cudaStream_t stream) {
  if (auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    int(layout.shared_bytes))) {
    return e;
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = unsigned(layout.launch_cluster());
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(layout.blocks()));
  config.blockDim = dim3(unsigned(kBlockThreads));
  config.dynamicSmemBytes = layout.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = layout.launch_cluster() > 1 ? 2 : 1;
  void* arguments[] = {params};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

constexpr size_t kMostShared = 227 << 10;  // per block on Hopper

// How many blocks of a layout can be resident at once; sets the refusal if not all can.
inline int check_resident(const void* kernel, PersistentLayout& layout) {
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       int(layout.shared_bytes));
  int most = 0;
  if (e == cudaSuccess && layout.launch_cluster() > 1) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = unsigned(layout.launch_cluster());
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(layout.blocks()));
    config.blockDim = dim3(unsigned(kBlockThreads));
    config.dynamicSmemBytes = layout.shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    e = cudaOccupancyMaxActiveClusters(&most, kernel, &config);
    most *= layout.launch_cluster();
  } else if (e == cudaSuccess) {
    int device = 0, sms = 0;
    e = cudaGetDevice(&device);
    if (e == cudaSuccess) {
      e = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (e == cudaSuccess) {
      e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, kernel, kBlockThreads,
                                                        layout.shared_bytes);
    }
    most *= sms;
  }
  if (e != cudaSuccess) {
    cudaGetLastError();
    layout.refusal = cudaGetErrorString(e);
  } else if (most < layout.blocks()) {
    layout.refusal = "not all of its " + std::to_string(layout.blocks()) +
                     " blocks can be resident at once, only " + std::to_string(most);
  }
  return most;
}

// The smallest even number of units per block that needs no more blocks than there are SMs.
inline int units_for(int hidden, int sms) {
  const int units = (hidden + sms - 1) / sms;
  return units + units % 2;
}

// The shared memory of a layout beside the product's own part, in bytes.
struct SharedNeeds {
  int state_floats;     // floats that a thread keeps per sample
  size_t fetched;       // what a thread reads for a pair of units in an iteration
  size_t shared_panel;  // the sums of a panel in a cluster
};

// Distributes shared memory: sets what is kept in it, and how far ahead the gates prefetch. Returns
// false if a group has too many samples.
inline bool fit_memory(PersistentLayout& layout, int planes, const SharedNeeds& needs) {
  PassShape& s = layout.shape;
  const bool groups = s.swapped;
  const int panels = s.group_panels(), own = s.thread_samples();
  s.step_words = s.panel_words * panels;
  s.all_words = s.step_words * s.layers;
  s.ring = layout.launch_cluster() > 1 ? panels + 1 : 0;
  s.buffers = 2;
  const size_t warp_sums = size_t(s.panel_samples) * (16 * layout.row_tiles + 4) * sizeof(float);
  const size_t states = size_t(panels) * own * needs.state_floats * kGateThreads * sizeof(float) +
                        s.ring * needs.shared_panel + 16 * ((s.ring + 1) / 2);
  const size_t fetched = own * needs.fetched * kGateThreads;
  const size_t chunk = size_t(kWarps) * planes * layout.row_tiles * 1024;
  const size_t product = groups ? size_t(s.product_floats) * sizeof(float) : 0;
  const int more = groups ? 0 : s.warp_chunks - layout.held_chunks;
  const auto used = [&] {
    return product + s.buffers * s.sum_parts * warp_sums + states + s.depth * fetched;
  };
  const auto fit = [&] {  // chunks that fit in shared memory
    if (used() > kMostShared) return -1;
    const int room = int((kMostShared - used()) / chunk);
    return room < more ? room : more;
  };
  // The ways to make room for weights, the cheapest first.
  s.depth = kFetchDepth;
  if (fit() < more) s.depth = 1;
  if (fit() < more) s.buffers = 1;
  const int unfolded = fit();
  if (!groups && unfolded < more) s.sum_parts = kWarps / 2;
  if (!groups && fit() == unfolded) s.sum_parts = kWarps;
  s.kept_chunks = fit();
  if (s.kept_chunks < 0) return false;
  s.streamed_chunks = more - s.kept_chunks;
  s.depth = kFetchDepth;
  if (fit() < s.kept_chunks) s.depth = 1;
  layout.shared_bytes = used() + s.kept_chunks * chunk;
  layout.l2_workspace_bytes = size_t(layout.blocks()) * s.streamed_chunks * chunk;
  if (!groups) s.product_floats = int(s.kept_chunks * chunk / sizeof(float));
  return true;
}

// Fills in what follows from the units, the GPU function (row_tiles, held_chunks or group_steps
// with their panel_samples and product_floats, cluster) and the inner extent of `vec8s`.
inline void complete_layout(PersistentLayout& layout, int planes, int hidden, int vec8s, int batch,
                            int sms, const SharedNeeds& needs) {
  PassShape& s = layout.shape;
  s.pair_bits = s.units <= 8 ? 2 : s.units <= 16 ? 3 : 4;
  if (s.cluster_units == 0) s.cluster_units = s.units * s.cluster;
  s.tiles = (hidden + s.cluster_units - 1) / s.cluster_units * s.cluster;
  s.vec8s = vec8s;
  const bool groups = s.swapped = layout.group_steps > 0;
  s.sum_parts = groups ? 2 : kWarps;
  // All warps or warpgroups have shares of equal length; in a stack, half of them have the layer's
  // own weights.
  const int shares = (s.layers > 1 ? s.sum_parts / 2 : s.sum_parts) * s.cluster;
  bool fits = true;
  if (groups) {
    s.panel_words = int64_t(shares) * layout.group_steps * 2 * s.panel_samples;
    fits = vec8s <= shares * layout.group_steps * 2;
  } else {
    s.warp_chunks = ((vec8s + 3) / 4 + shares - 1) / shares;
    const int least = ring_chunks(planes, layout.row_tiles, layout.held_chunks);
    if (s.warp_chunks < least) s.warp_chunks = least;
    s.panel_words = int64_t(shares) * s.warp_chunks * planes * 64;
    fits = s.warp_chunks <= 32;
  }
  sms /= s.layers;
  if (s.tiles > sms || !fits) {
    layout.refusal = "more hidden units than the GPU has room for";
    return;
  }
  // As many groups of samples as there is room for, with at least 8 samples each and at most 16
  // panels; with warpgroups, as many panels as fit beside what those keep.
  const int most = sms / s.tiles, wanted = (batch + 7) / 8;
  s.groups = most < wanted ? most : wanted;
  const int sample_tiles = (wanted + s.groups - 1) / s.groups;
  for (int panels = 16 / s.thread_samples(); panels > 0; panels = groups ? panels - 1 : 0) {
    const int most_tiles = panels * s.panel_samples / 8;
    s.group_samples = 8 * (sample_tiles < most_tiles ? sample_tiles : most_tiles);
    const int needed = (batch + s.group_samples - 1) / s.group_samples;
    s.groups = s.groups < needed ? s.groups : needed;
    if (fit_memory(layout, planes, needs)) return;
  }
  layout.refusal = "too many samples for one pass";
}

// Initialises the slots of a layer: absent, or the initial state.
template <typename T, bool kStates>
cudaError_t begin_exchange(const PassShape& shape, const Sequence& s, const T* h0, int first_sample,
                           int samples, uint4* exchange, cudaStream_t stream) {
  // At least sixteen slots per thread, so that computing the initial value of a word pays off.
  const int slots = shape.slots(s.steps), apart = slots < 16 ? 1 : slots < 256 ? slots / 16 : 16;
  const dim3 blocks(unsigned((shape.step_words + 127) / 128), unsigned(apart),
                    unsigned(shape.groups));
  rnn_exchange_begin_kernel<T, kStates><<<blocks, 128, 0, stream>>>(
      shape, s, h0, first_sample, samples, (s.hidden + 7) / 8, exchange);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda::recurrent
