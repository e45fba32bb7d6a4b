#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "ridgeline/cuda/plain/loose.h"
#include "ridgeline/cuda/recurrent/cell.h"

// A whole pass over a sequence in one launch: each block keeps the recurrent weights of a few
// hidden units on chip for all steps, and a step is a product of those with the state of all units,
// which the blocks hand each other through L2. Words that are handed over are checked for a value
// that no state can have, so no barrier is needed: a block goes on as soon as what it reads has
// come. Items go in panels of 16; while those of one are on their way, others are multiplied. All
// blocks must be resident: launched cooperatively, refused when they cannot be.
// bf16, fp16, and fp32 as sums of three bf16 numbers.
namespace ridgeline::cuda::recurrent {

// Of a block: those that apply the gates.
constexpr int kGateThreads = 128;
constexpr int kFetchDepth = 4;
// Of a panel in shared memory that wgmma takes, in bytes.
constexpr int kPanelAlignment = 1024;

// What a kernel knows of its layout. A block's product has 16 * row_tiles rows; its warps share out
// the inner extent in pieces of 32 places.
struct PassShape {
  int units = 0;            // hidden units of a block, even
  int cluster = 1;          // blocks that share out the inner extent, backward (by wgmma they are
                            // no cluster to the GPU), or a whole layer, forward, and
  int cluster_units = 0;    // the units they have together: the last may have fewer than the others
  int pair_bits = 0;        // 4, 8 or 16 threads stand side by side for them, with two each
  int tiles = 0;            // blocks that share out the hidden units
  int groups = 1;           // of items, each with its own blocks
  int panel_items = 16;     // that one product takes: 8, 16 or 32
  bool swapped = false;     // slots lie as wgmma reads them
  int product_floats = 0;   // of shared memory, what a product keeps for itself: its first part
  int group_items = 0;      // a multiple of 8; of a panel where there are more
  int octets = 0;           // 8 consecutive places of the inner extent: what one lane reads at once
  int warp_pieces = 0;      // of 32 places, of each warp: first those in registers, then
  int kept_pieces = 0;      // those in shared memory, then
  int streamed_pieces = 0;  // those that come from L2 in each step
  int buffers = 2;    // of partial sums; with one the block's warps wait for each other once more
  int sum_parts = 8;  // partial sums: of all warps, of half of them with those of others added, or
                      // of two halves of them
  int ring = 0;       // panels that a cluster may have on the way
  int depth = 1;      // turns that a thread fetches ahead: kFetchDepth or 1
  int layers = 1;     // of a stack: blocks of each layer run side by side
  // uint4s of a slot: of a panel, of a layer's group, and of all layers'.
  int64_t panel_words = 0, step_words = 0, all_words = 0;

  int group_panels() const { return (group_items + panel_items - 1) / panel_items; }
  // Of a panel, that a thread applies gates to.
  int thread_items() const {
    const int pairs = panel_items << pair_bits;
    return pairs > kGateThreads ? pairs / kGateThreads : 1;
  }
  // A stack's last state is handed on, to the layer above.
  RIDGELINE_CELL_HD int slots(int steps) const { return steps + (layers > 1 ? 1 : 0); }
};

struct PersistentLayout {
  std::string refusal;  // why there is none; "" when there is one
  PassShape shape;
  int row_tiles = 1, held_pieces = 4;  // which kernel: the latter in registers, or
  int group_steps = 0;                 // 16 places each of a warpgroup, by wgmma
  size_t shared_bytes = 0, streamed_bytes = 0;

  int launch_cluster() const { return shape.swapped ? 1 : shape.cluster; }
  int blocks() const { return shape.tiles * shape.groups * shape.layers; }
  int items() const { return shape.groups * shape.group_items; }  // of a launch
  size_t exchange_bytes(int steps) const {
    return size_t(shape.all_words) * 16 * size_t(shape.groups) * size_t(shape.slots(steps));
  }
};

// How the hidden units are shared out.
enum class PersistentForm : uint8_t {
  narrow,    // as many blocks as there can be
  wide,      // twice the units a block: half the blocks read the state, or more groups share it out
  clusters,  // forward: each cluster has the whole layer; backward: four blocks share the inner
             // extent
  pairs,     // backward: two blocks share the inner extent
  groups,    // forward: by wgmma, 32 items at a time
  large      // GRUs by wgmma, 16 items at a time: weights in registers and in shared memory
};

// Of the current device. A batch that one launch does not take is taken in several.
PersistentLayout persistent_forward_layout(Cell cell, int planes, int hidden, int batch,
                                           int processors, PersistentForm form);
PersistentLayout persistent_backward_layout(Cell cell, int planes, int hidden, int batch,
                                            int processors, PersistentForm form);

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
  uint4 *exchange, *streamed;
  const T* w_ih;  // [gates, H, H] of a layer that stands on another in a stack, without from_x
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
  uint4 *exchange, *streamed;
};

// A stack of layers of equal width as a wavefront: in one launch, each layer a step behind the one
// below, whose state it takes as it comes.
constexpr int kMostLayers = 8;
PersistentLayout persistent_stack_layout(Cell cell, int planes, int layers, int hidden, int batch,
                                         int processors, PersistentForm form);
template <typename T>
struct PersistentStack {
  PersistentForward<T> layers[kMostLayers];  // of one batch; the first has from_x
};

// T is __nv_bfloat16, __half or float.
template <typename T>
cudaError_t launch_persistent_forward(const PersistentForward<T>& args,
                                      const PersistentLayout& layout, cudaStream_t stream);
template <typename T>
cudaError_t launch_persistent_stack(const PersistentStack<T>& args, const PersistentLayout& layout,
                                    cudaStream_t stream);
template <typename T>
cudaError_t launch_persistent_backward(const PersistentBackward<T>& args,
                                       const PersistentLayout& layout, cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
