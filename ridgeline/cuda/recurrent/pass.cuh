#pragma once

#include "ridgeline/cuda/recurrent/block_product.cuh"
#include "ridgeline/cuda/recurrent/persistent.h"

namespace ridgeline::cuda::recurrent {

// Rows between the gates of a block's product: its units have their places in each.
constexpr int forward_gate_rows(Cell cell, int row_tiles) {
  return 16 * row_tiles / cell_gates(cell) / 2 * 2;
}

// Eight values of a row of `count`, those there are; 16 bytes at once where they lie so.
template <typename T>
__device__ inline void load_octet(const T* row, int octet, int count, float (&v)[8]) {
  const T* at = row + 8 * octet;
  if (sizeof(T) == 2 && 8 * octet + 8 <= count && reinterpret_cast<uintptr_t>(at) % 16 == 0) {
    const uint4 words = *reinterpret_cast<const uint4*>(at);
    const T* values = reinterpret_cast<const T*>(&words);
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = float(values[e]);
    return;
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if (8 * octet + e < count) v[e] = float(at[e]);
  }
}

// Where a block and a thread of a persistent pass stand: what both directions share.
struct PassPlace {
  // Copies: what lies behind a reference is read again after every word that is handed over.
  const PassShape shape;
  const Sequence s;
  int tile, group, layer;
  int first_item, items, panels;  // of the block's group
  int unit_in_block, unit;        // of the thread; past all units where it has none
  int warp;

  __device__ PassPlace(const PassShape& shape, const Sequence& s, int first, int all_items)
      : shape(shape), s(s) {
    tile = blockIdx.x % shape.tiles;
    group = blockIdx.x / shape.tiles % shape.groups;
    layer = blockIdx.x / (shape.tiles * shape.groups);
    first_item = first + group * shape.group_items;
    items = min(shape.group_items, first + all_items - first_item);
    panels = (items + kPanelItems - 1) / kPanelItems;
    unit_in_block = threadIdx.x & ((1 << shape.lane_bits) - 1);
    unit = tile * shape.units + unit_in_block;
    if (unit_in_block >= shape.units || unit >= s.hidden) unit = 1 << 30;
    warp = threadIdx.x / 32;
  }

  __device__ bool has_unit() const { return unit < s.hidden; }
  // The thread's i-th item of a panel, and whether there is one.
  __device__ int in_panel(int i) const {
    return int(threadIdx.x + i * kThreads) >> shape.lane_bits;
  }
  __device__ bool has_item(int panel, int i) const {
    return in_panel(i) < kPanelItems && kPanelItems * panel + in_panel(i) < items;
  }
  __device__ bool has(int panel, int i) const { return has_unit() && has_item(panel, i); }
  // Of the whole batch.
  __device__ int item(int panel, int i) const {
    return first_item + kPanelItems * panel + in_panel(i);
  }
  __device__ int group_panels() const {
    return (shape.group_items + kPanelItems - 1) / kPanelItems;
  }
  // Whether a panel has items in its second tile.
  __device__ bool two_tiles(int panel) const { return items - kPanelItems * panel > 8; }
  // Which part of the inner extent this warp has: in other blocks other warps, so that not all ask
  // for the same memory at once.
  __device__ int slice() const { return (warp + tile) % kWarps; }
  // Row [b, t] of the first panel's i-th item at time 0; others lie a stride on.
  __device__ int first_row(int i) const { return (first_item + in_panel(i)) * s.steps; }
  __device__ int panel_rows() const { return kPanelItems * s.steps; }

  // This warp's memory for weights that are not in registers.
  __device__ uint4* kept(uint4* all, int piece_words) const {
    return all + int64_t(warp) * shape.kept_pieces * piece_words;
  }
  __device__ uint4* streamed(uint4* all, int piece_words) const {
    return all + (int64_t(blockIdx.x) * kWarps + warp) * shape.streamed_pieces * piece_words;
  }
};

// Floats that a thread keeps for each of its items from step to step, in shared memory.
template <int kValues, int kOwn>
class ThreadState {
 public:
  __device__ explicit ThreadState(float* memory) : memory_(memory + threadIdx.x) {}
  __device__ float& at(int panel, int i, int value) const {
    return memory_[((panel * kOwn + i) * kValues + value) * kThreads];
  }

 private:
  float* memory_;
};

// Words of places and items past the last one are zero; others are absent until they come.
// Forward (kStates), slot 0 of each group has the initial state. `exchange` is the layer's.
template <typename T, bool kStates>
__global__ void rnn_exchange_begin_kernel(PassShape shape, Sequence s, const T* h0, int first_item,
                                          int items, int unit_octets, uint4* exchange) {
  using H = Handed<T>;
  const int64_t step_words = shape.step_words, group_words = step_words * shape.slots(s.steps);
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < group_words * shape.groups;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int group = int(i / group_words);
    const int64_t within = i % group_words;
    const int word = int(within % shape.panel_words),
              panel = int(within % step_words / shape.panel_words);
    const int tile = word / 32 % 2, plane = word / 64 % H::kPlanes;
    const int octet = word / (64 * H::kPlanes) * 4 + word / 2 % 4;
    const int unit = 8 * (octet % unit_octets);
    const int local = kPanelItems * panel + 8 * tile + word / 8 % 4 * 2 + word % 2;
    const int item = first_item + group * shape.group_items + local;
    const bool live = local < shape.group_items && item < first_item + items;
    uint32_t words[4];
    for (int e = 0; e < 4; ++e) {
      words[e] = live && octet < shape.octets && unit + 2 * e < s.hidden ? kAbsent : 0;
    }
    if (kStates && within < step_words) {
      for (int e = 0; e < 8; e += 2) {
        float v[2] = {};
        for (int k = 0; k < 2; ++k) {
          if (!live || h0 == nullptr || unit + e + k >= s.hidden) continue;
          float planes[H::kPlanes];
          H::take_apart(float(h0[int64_t(item) * s.hidden + unit + e + k]), planes);
          v[k] = planes[plane];
        }
        words[e / 2] = Pair<typename H::Operand>::pack(v[0], v[1]);
      }
    }
    exchange[i / step_words * shape.all_words + within % step_words] =
        uint4{words[0], words[1], words[2], words[3]};
  }
}

}  // namespace ridgeline::cuda::recurrent
