#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "ridgeline/cuda/plain/loose.h"
#include "ridgeline/cuda/recurrent/cell.h"

// A whole pass over a sequence in one launch: each block keeps the recurrent weights of a few
// hidden units in registers for all steps, and a step is a product of those with the state of all
// units, which the blocks hand each other through L2. Words that are handed over are checked for a
// value that no state can have, so no barrier is needed: a block goes on as soon as what it reads
// has come. All blocks must be resident: launched cooperatively, refused when they cannot be.
// Halves only.
namespace ridgeline::cuda::recurrent {

// How a pass is laid out over the GPU. A block's 8 warps share out the inner extent of the product
// in pieces of 32; each holds `pairs` of them (two mma k-blocks each).
struct PersistentLayout {
  std::string refusal;  // why there is none; "" when there is one
  int units = 0;        // hidden units of a block
  int tiles = 0;        // blocks that share out the hidden units
  int groups = 1;       // of items, each with its own blocks
  int group_batch = 0;  // items of a group
  int own = 1;          // (unit, item) pairs of a thread: a kernel is built for 1 and for 4
  int cluster = 1;      // blocks that share out the inner extent, backward
  int row_tiles = 1;    // of 16 rows of a block's product
  int buffers = 2;      // of partial sums; with one the block's warps wait for each other once more
  // Cycles that warps without items wait before they ask; -1: none, as all rows have it. In trials
  // on an H200 450 took an LSTM of 1024 units and 16 items from 2.57 to 2.13 us a step and cost
  // small layers a tenth.
  int pause = -1;
  int octets = 0;      // 8 consecutive places of the inner extent: what one lane reads at once
  int pairs = 0;       // kernels are built for 2, 4 and 8
  int item_tiles = 0;  // of 8 items, of a group
  size_t shared_bytes = 0;
  size_t slot_bytes = 0;  // what is handed over in a step, of a group
  size_t exchange_bytes(int steps) const { return slot_bytes * size_t(groups) * size_t(steps); }
  int blocks() const { return tiles * groups; }
};

constexpr int kPersistentMostItems = 64;  // of a launch

// Of the current device, for `batch` <= kPersistentMostItems. Forward, `wide` gives a block twice
// the units: half the blocks then read the state, or twice the groups share out the items.
// Backward, `clusters` lets four blocks share the inner extent.
PersistentLayout persistent_forward_layout(Cell cell, int hidden, int batch, int processors,
                                           bool wide);
PersistentLayout persistent_backward_layout(Cell cell, int hidden, int batch, int processors,
                                            bool clusters);

// The items from `first_item` on, group by group.
template <typename T>
struct PersistentForward {
  Cell cell;
  Sequence sequence;  // with the batch of the whole op
  int first_item, items;
  const float* from_x;  // [B, T, gates, H]
  const T* w_hh;
  LooseIn<T> b_ih, b_hh;
  const T *h0, *c0;  // [B, H] of the direction; may be null
  T *y, *reserve;    // reserve may be null
  T *hT, *cT;        // as h0; may be null
  uint4* exchange;
};

template <typename T>
struct PersistentBackward {
  Cell cell;
  Sequence sequence;
  int first_item, items;
  const T *y, *reserve, *h0, *c0, *dy;
  const T* w_hh;
  const T *dhT, *dcT;  // [B, H] of the direction; may be null
  T* gate_gradients;
  T *dh0, *dc0;  // may be null
  uint4* exchange;
};

template <typename T>
cudaError_t launch_persistent_forward(const PersistentForward<T>& args,
                                      const PersistentLayout& layout, cudaStream_t stream);
template <typename T>
cudaError_t launch_persistent_backward(const PersistentBackward<T>& args,
                                       const PersistentLayout& layout, cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
