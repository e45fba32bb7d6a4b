#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "ridgeline/cuda/plain/mixed_operand.h"
#include "ridgeline/cuda/recurrent/cell.h"

// A whole pass over a sequence in one launch. Each block keeps the recurrent weights of a few
// hidden units on chip for all timesteps (weight-stationary). A timestep is a product of these with
// the state of all units, which the blocks exchange through L2. No barrier is needed: unwritten
// words hold a value that no state can have, and a block continues as soon as all words it reads
// have another value. Samples are processed in panels of 16; while one panel is in flight, others
// are multiplied. All blocks must be resident: the launch is cooperative, and refused if they
// cannot be. Takes bf16, fp16, and fp32 as sums of three bf16 values.
namespace ridgeline::cuda::recurrent {

// The threads of a block that apply the gates.
constexpr int kGateThreads = 128;
constexpr int kFetchDepth = 4;
// The alignment in bytes of a panel in shared memory that wgmma reads.
constexpr int kPanelAlignment = 1024;

// The layout that a GPU function is passed. A block's product has 16 * row_tiles rows; its warps
// split the inner extent, in chunks of 32 places.
struct PassShape {
  int units = 0;  // hidden units per block, even
  // Backward, the blocks that split the inner extent (with wgmma they are not launched as a
  // cluster); forward, the blocks that hold a whole layer.
  int cluster = 1;
  int cluster_units = 0;    // their units together; the last block may have fewer than the others
  int pair_bits = 0;        // 4, 8 or 16 adjacent threads apply their gates, two units each
  int tiles = 0;            // blocks that split the hidden units
  int groups = 1;           // groups of samples, each with its own blocks
  int panel_samples = 16;   // samples per product: 8, 16 or 32
  bool swapped = false;     // slots have the layout that wgmma reads
  int product_floats = 0;   // shared memory of the product itself: the first part
  int group_samples = 0;    // a multiple of 8, or of a panel if there is more than one
  int vec8s = 0;            // groups of 8 places of the inner extent, which a lane reads at once
  int warp_chunks = 0;      // chunks of 32 places per warp: first those in registers, then
  int kept_chunks = 0;      // those in shared memory, then
  int streamed_chunks = 0;  // those that are read from L2 in each timestep
  // Buffers of partial sums; with one buffer the block's warps wait for each other once more.
  int buffers = 2;
  // How many partial sums a block has: one per warp, one per two warps (which are added first), or
  // one per half of the warps.
  int sum_parts = 8;
  int ring = 0;    // panels that a cluster may have in flight
  int depth = 1;   // iterations that a thread prefetches: kFetchDepth or 1
  int layers = 1;  // of a stack: the blocks of all layers run concurrently
  // uint4s of a slot: per panel, per group of a layer, and for all layers.
  int64_t panel_words = 0, step_words = 0, all_words = 0;

  int group_panels() const { return (group_samples + panel_samples - 1) / panel_samples; }
  // The samples of a panel that a thread applies gates to.
  int thread_samples() const {
    const int pairs = panel_samples << pair_bits;
    return pairs > kGateThreads ? pairs / kGateThreads : 1;
  }
  // In a stack, the last state is passed to the layer above, too.
  RIDGELINE_CELL_HD int slots(int steps) const { return steps + (layers > 1 ? 1 : 0); }
};

struct PersistentLayout {
  std::string refusal;  // why there is no layout; "" if there is one
  PassShape shape;
  int row_tiles = 1, held_chunks = 4;  // which GPU function: the latter in registers, or
  int group_steps = 0;                 // steps of 16 places per warpgroup, by wgmma
  size_t shared_bytes = 0, l2_workspace_bytes = 0;

  int launch_cluster() const { return shape.swapped ? 1 : shape.cluster; }
  int blocks() const { return shape.tiles * shape.groups * shape.layers; }
  int samples() const { return shape.groups * shape.group_samples; }  // per launch
  size_t exchange_bytes(int steps) const {
    return size_t(shape.all_words) * 16 * size_t(shape.groups) * size_t(shape.slots(steps));
  }
};

// How the hidden units are divided among the blocks.
enum class PersistentForm : uint8_t {
  narrow,    // as many blocks as possible
  wide,      // twice the units per block: fewer blocks read the state, or there are more groups
  clusters,  // forward: a cluster has a whole layer; backward: four blocks split the inner extent
  pairs,     // backward: two blocks split the inner extent
  groups,    // forward: by wgmma, 32 samples at a time
  large      // GRUs by wgmma, 16 samples at a time: weights in registers and in shared memory
};

// The layout for the current device. A batch that is too large for one launch is run in several.
PersistentLayout persistent_forward_layout(Cell cell, int planes, int hidden, int batch, int sms,
                                           PersistentForm form);
PersistentLayout persistent_backward_layout(Cell cell, int planes, int hidden, int batch, int sms,
                                            PersistentForm form);

// The operands of a pass over the samples from `first_sample` on, group by group.
template <typename T>
struct PersistentForward {
  Cell cell;
  Sequence sequence;  // with the batch of the whole op
  int first_sample, samples;
  const float* from_x;  // [B, T, gates, H]
  const T* w_hh;
  MixedIn<T> b_ih, b_hh;
  const T *h0, *c0;                // [B, H] of the direction; may be null
  T *y, *reserve;                  // reserve may be null
  T *hT, *cT;                      // like h0; may be null
  uint4 *exchange, *l2_workspace;  // the latter holds streamed weights
  const T* w_ih;  // [gates, H, H] of a layer on top of another in a stack, without from_x
};

template <typename T>
struct PersistentBackward {
  Cell cell;
  Sequence sequence;
  int first_sample, samples;
  const T *y, *reserve, *h0, *c0, *dy;
  const T* w_hh;
  const T *dhT, *dcT;  // [B, H] of the direction; may be null
  T* gate_gradients;
  T *dh0, *dc0;                    // may be null
  uint4 *exchange, *l2_workspace;  // the latter holds streamed weights or L2PartialSums
};

// A stack of layers of equal width as a wavefront in one launch: each layer runs a timestep behind
// the one below, and reads its state as it arrives.
constexpr int kMostLayers = 8;
PersistentLayout persistent_stack_layout(Cell cell, int planes, int layers, int hidden, int batch,
                                         int sms, PersistentForm form);
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
