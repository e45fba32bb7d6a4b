#pragma once

#include "ridgeline/cuda/recurrent/persistent.h"

// What the launchers of both directions share.
namespace ridgeline::cuda::recurrent {

// Calls f<cell>.
template <typename F>
cudaError_t dispatch_cell(Cell cell, F f) {
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

// Cooperatively, in clusters where the layout has them.
inline cudaError_t launch_resident_blocks(const void* kernel, const PersistentLayout& layout,
                                          int threads, void* params, cudaStream_t stream) {
  if (auto e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    int(layout.shared_bytes))) {
    return e;
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = unsigned(layout.cluster);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(layout.blocks()));
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = layout.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = layout.cluster > 1 ? 2 : 1;
  void* arguments[] = {params};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

constexpr size_t kMostShared = 227 << 10;  // of a block on Hopper

// Room for partial sums of `floats`, twice where there is room, beside `more` bytes.
inline void share_memory(PersistentLayout& layout, int floats, size_t more) {
  const size_t each = size_t(floats) * sizeof(float);
  layout.buffers = 2 * each + more <= kMostShared ? 2 : 1;
  layout.shared_bytes = size_t(layout.buffers) * each + more;
}

// How many blocks of a layout can be resident at once; sets the refusal where not all can.
inline int check_resident(const void* kernel, int threads, PersistentLayout& layout) {
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       int(layout.shared_bytes));
  int most = 0;
  if (e == cudaSuccess && layout.cluster > 1) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = unsigned(layout.cluster);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(layout.blocks()));
    config.blockDim = dim3(unsigned(threads));
    config.dynamicSmemBytes = layout.shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    e = cudaOccupancyMaxActiveClusters(&most, kernel, &config);
    most *= layout.cluster;
  } else if (e == cudaSuccess) {
    int device = 0, processors = 0;
    e = cudaGetDevice(&device);
    if (e == cudaSuccess) {
      e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    }
    if (e == cudaSuccess) {
      e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, kernel, threads,
                                                        layout.shared_bytes);
    }
    most *= processors;
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

// Shares the items out over as many groups of blocks as there is room for, 8 items at least each.
inline void share_items(PersistentLayout& layout, int batch, int processors) {
  const int most = processors / layout.tiles, wanted = (batch + 7) / 8;
  layout.groups = most < wanted ? most : wanted;
  if (layout.groups < 1) layout.groups = 1;
  const int tiles = (wanted + layout.groups - 1) / layout.groups;
  layout.group_batch = 8 * tiles;
  layout.groups = (batch + layout.group_batch - 1) / layout.group_batch;
  layout.item_tiles = tiles;
}

}  // namespace ridgeline::cuda::recurrent
