#pragma once

// How a block's slice of activations reaches the other blocks, and how inputs are gathered. Two
// ways with one interface; each says when a buffer may be written again.

#include <cstdint>

#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/device/grid_barrier.cuh"
#include "ridgeline/cuda/mlp_train/fragments.cuh"
#include "ridgeline/cuda/mlp_train/gather.cuh"
#include "ridgeline/cuda/mlp_train/resident_plan.h"
#include "ridgeline/cuda/mlp_train/stages.h"

namespace ridgeline::cuda::mlp {

struct ResidentParams {
  MlpTrainArgs args;
  ResidentPlan plan;
  uint32_t* counter;  // grid barrier
  char* exchange;     // zeroed: what no block writes (units past the last) must read as 0
  char* private_part;
};

// Barriers of a block: 0 is unused.
constexpr int kComputeBarrier = 1;
constexpr int kStepBarrier = 2;     // all warps, at the start of each step
constexpr int kUpdatedBarrier = 3;  // compute and update warps, at the end
constexpr int kReadyBarrier = 4;    // and the next: update warps wait for compute warps

// The whole life of the gather warp of a block of a grid: x(t + 1) is written before step t begins,
// so that the barriers of step t carry it over.
template <typename T, int kSampleTiles>
__device__ inline void gather_for_grid(const MlpTrainArgs& args, int block, int blocks, int thread,
                                       char* ring, int x_bytes, int* labels) {
  const int64_t first = *args.first;
  for (int t = 0; t < args.steps; ++t) {
    const int64_t base = first + int64_t{t} * args.shape.batch;
    gather_labels<kSampleTiles>(args, base, t, thread, 32, labels);
    uint4* out = reinterpret_cast<uint4*>(ring + int64_t{t & (kInputRing - 1)} * x_bytes);
    for (int i = block * 32 + thread; i < x_bytes / 16; i += blocks * 32) {
      __stcg(out + i, gather_chunk<T, kSampleTiles>(args, base, i));
    }
    named_barrier(kStepBarrier, 32 * kWarps);
  }
  named_barrier(kStepBarrier, 32 * kWarps);
}

// The slot in a matrix of activations of 4 units (`quad` counts them over all blocks) of samples
// g and g + 8 of a sample tile.
template <int kSampleTiles>
__device__ inline int slot_of(int quad, int sample_tile, int g) {
  return ((quad >> 2) * kSampleTiles + sample_tile) * 32 + g * 4 + (quad & 3);
}

// The quads of units that a block sends of a layer's output.
__device__ inline void set_own_quads(const ResidentLayer& layer, int block, Stage& stage) {
  stage.first_quad = block * 2 * layer.own_tiles;
  stage.quads = min(2 * layer.own_tiles, 4 * layer.out_tiles - stage.first_quad);
}

// Slices go through L2; a grid barrier follows each. All buffers of step t are read before any
// block passes the first barrier of step t + 1; y of layer 0 and x, read later, alternate.
template <typename T, int kSampleTiles>
class GridExchange {
 public:
  using From = FromL2;
  static constexpr int kWarpCount = kGridComputeWarps, kUpdateWarps = 0, kGatherWarps = 1;
  static constexpr bool kPrologue = true;  // a step barrier before the first step's

  __device__ GridExchange(const ResidentParams& p, char* shared, int block)
      : p_(p), shared_(shared), block_(block), barrier_(p.counter, p.plan.blocks) {}

  __device__ const uint4* x(int t) const {
    return at(p_.plan.x + int64_t{t & (kInputRing - 1)} * p_.plan.x_bytes);
  }
  __device__ const uint4* y(int l, int t) const { return at(y_at(l, t)); }
  __device__ const uint4* dy(int l) const { return at(p_.plan.layer[l].dy); }

  __device__ void will_wait(Stage& stage, Exchanged what, int, int) const {
    stage.wait_bytes = what != Exchanged::x;  // x came with the barriers of the step before
  }
  __device__ void will_send(Stage& stage, Exchanged what, int l, int t) const {
    stage.send_to = at(what == Exchanged::y ? y_at(l, t) : p_.plan.layer[l].dy);
    set_own_quads(p_.plan.layer[l], block_, stage);
  }

  // Before the first step, by the compute warps: x(0) is there.
  __device__ void begin() {
    arrive();
    wait();
  }
  __device__ void wait(const Stage& stage, int) {
    if (stage.wait_bytes) wait();
  }
  // One word of a slot: units 4 * quad.., samples g and g + 8; word e & 3. Four threads a slot.
  __device__ void send(const Stage& stage, int e, int quad, int sample_tile, int g, uint32_t word) {
    if (!stage.send_to || quad >= stage.quads) return;
    const int slot = slot_of<kSampleTiles>(stage.first_quad + quad, sample_tile, g);
    __stcg(reinterpret_cast<uint32_t*>(stage.send_to) + slot * 4 + (e & 3), word);
  }
  __device__ void sent(const Stage& stage) {
    if (!stage.send_to) return;
    named_barrier(kComputeBarrier, 32 * kWarpCount);
    arrive();
  }

  __device__ void gather(int thread) {
    gather_for_grid<T, kSampleTiles>(p_.args, block_, p_.plan.blocks, thread,
                                     p_.exchange + p_.plan.x, p_.plan.x_bytes,
                                     reinterpret_cast<int*>(shared_ + p_.plan.labels));
  }

 private:
  __device__ int64_t y_at(int l, int t) const {
    const auto& layer = p_.plan.layer[l];
    return layer.y + (l == 0 && (t & 1) ? int64_t{layer.out_tiles} * kSampleTiles * kTileBytes : 0);
  }
  __device__ uint4* at(int64_t offset) const {
    return reinterpret_cast<uint4*>(p_.exchange + offset);
  }
  __device__ void arrive() {
    if (threadIdx.x == 0) barrier_.arrive();
  }
  __device__ void wait() {
    if (threadIdx.x == 0) barrier_.wait();
    named_barrier(kComputeBarrier, 32 * kWarpCount);
  }

  const ResidentParams& p_;
  char* shared_;
  int block_;
  GridBarrier barrier_;
};

// Slices are stored into every block's shared memory; the bytes count themselves on a barrier
// there. A block that owns nothing of a layer sends filler, so that having all of y(l, t) means
// that every block has come as far: that is what makes buffers of the step before free.
template <typename T, int kSampleTiles>
class ClusterExchange {
 public:
  using From = FromShared;
  static constexpr int kWarpCount = kClusterComputeWarps, kUpdateWarps = 6, kGatherWarps = 2;
  static constexpr bool kPrologue = false;

  __device__ ClusterExchange(const ResidentParams& p, char* shared, int block)
      : p_(p), shared_(shared), block_(block) {
    const uint32_t here = shared_address(shared);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int b = min(4 * i + int(threadIdx.x & 3), p.plan.blocks - 1);
      peer_[i] = cluster_address(here, b) - here;
    }
  }

  __device__ const uint4* x(int t) const { return at(x_at(t)); }
  __device__ const uint4* y(int l, int t) const { return at(y_at(l, t)); }
  __device__ const uint4* dy(int l) const { return at(p_.plan.layer[l].dy); }

  __device__ void will_wait(Stage& stage, Exchanged what, int l, int t) const {
    const bool twice = what == Exchanged::x || (what == Exchanged::y && l == 0);
    stage.wait_shift = twice ? 1 : 0;
    stage.wait_bytes = what == Exchanged::x ? p_.plan.x_bytes : p_.plan.layer[l].y_bytes;
    stage.wait_barrier = shared_address(&bar(what == Exchanged::x   ? t & 1
                                             : what == Exchanged::y ? y_barrier(l, t)
                                                                    : dy_barrier(l)));
  }
  __device__ void will_send(Stage& stage, Exchanged what, int l, int t) const {
    const bool y = what == Exchanged::y;
    stage.send_to = at(y ? y_at(l, t) : p_.plan.layer[l].dy);
    stage.send_barrier = shared_address(&bar(y ? y_barrier(l, t) : dy_barrier(l)));
    set_own_quads(p_.plan.layer[l], block_, stage);
  }

  __device__ void begin() {}
  // Waits for a buffer's next use and opens the one after.
  __device__ void wait(const Stage& stage, int t) {
    if (!stage.wait_bytes) return;
    ByteBarrier::wait_at(stage.wait_barrier, (t >> stage.wait_shift) & 1);
    if (threadIdx.x == 0) ByteBarrier::expect_at(stage.wait_barrier, stage.wait_bytes);
  }
  // Four threads put a slot's words together; each sends it to a quarter of the blocks.
  __device__ void send(const Stage& stage, int e, int quad, int sample_tile, int g, uint32_t word) {
    if (!stage.send_to) return;
    const int from = threadIdx.x & 28;
    const uint4 v = {__shfl_sync(~0u, word, from), __shfl_sync(~0u, word, from + 1),
                     __shfl_sync(~0u, word, from + 2), __shfl_sync(~0u, word, from + 3)};
    if (quad >= stage.quads) return;
    const int slot = slot_of<kSampleTiles>(stage.first_quad + quad, sample_tile, g);
    const uint32_t to = shared_address(stage.send_to + slot);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (4 * i + (e & 3) < p_.plan.blocks) {
        store_async_16(to + peer_[i], v, stage.send_barrier + peer_[i]);
      }
    }
  }
  __device__ void sent(const Stage& stage) {
    if (!stage.send_to || stage.quads > 0 || threadIdx.x >= p_.plan.blocks) return;
    const uint32_t to = shared_address(at(p_.plan.filler) + block_);
    store_async_16(cluster_address(to, threadIdx.x), {0, 0, 0, 0},
                   cluster_address(stage.send_barrier, threadIdx.x));
  }

  // One thread, before the cluster's first barrier.
  __device__ void start() {
    for (int i = 0; i < 2; ++i) arm(i, p_.plan.x_bytes);
    for (int i = 0; i < 2; ++i) arm(y_barrier(0, i), p_.plan.layer[0].y_bytes);
    for (int l = 1; l < p_.plan.hidden; ++l) {
      arm(y_barrier(l, 0), p_.plan.layer[l].y_bytes);
      arm(dy_barrier(l), p_.plan.layer[l].y_bytes);
    }
  }

  // x(t) takes the place of x(t - 2) once all blocks have sent y(0, t - 1), hence left step t - 2.
  __device__ void gather(int thread) {
    const int64_t first = *p_.args.first;
    for (int t = 0; t < p_.args.steps; ++t) {
      const int64_t base = first + int64_t{t} * p_.args.shape.batch;
      gather_labels<kSampleTiles>(p_.args, base, t, thread, 32 * kGatherWarps,
                                  reinterpret_cast<int*>(shared_ + p_.plan.labels));
      const int chunks = p_.plan.x_bytes / 16, stride = p_.plan.blocks * 32 * kGatherWarps;
      for (int i = block_ * 32 * kGatherWarps + thread, round = 0; round * stride < chunks;
           i += stride, ++round) {
        const uint4 v =
            i < chunks ? gather_chunk<T, kSampleTiles>(p_.args, base, i) : uint4{0, 0, 0, 0};
        if (round == 0 && t > 0) bar(y_barrier(0, t - 1)).wait(((t - 1) >> 1) & 1);
        if (i < chunks) {
          const uint32_t to = shared_address(at(x_at(t)) + i), on = shared_address(&bar(t & 1));
          for (int b = 0; b < p_.plan.blocks; ++b) {
            store_async_16(cluster_address(to, b), v, cluster_address(on, b));
          }
        }
      }
      named_barrier(kStepBarrier, 32 * kWarps);
    }
  }

 private:
  static __device__ int y_barrier(int l, int t) { return l == 0 ? 2 + (t & 1) : 3 + l; }
  static __device__ int dy_barrier(int l) { return 3 + kMlpMaxLayers + l; }
  __device__ int64_t x_at(int t) const { return p_.plan.x + int64_t{t & 1} * p_.plan.x_bytes; }
  __device__ int64_t y_at(int l, int t) const {
    const auto& layer = p_.plan.layer[l];
    return layer.y + (l == 0 && (t & 1) ? int64_t{layer.out_tiles} * kSampleTiles * kTileBytes : 0);
  }
  __device__ uint4* at(int64_t offset) const { return reinterpret_cast<uint4*>(shared_ + offset); }
  __device__ ByteBarrier& bar(int i) const {
    return reinterpret_cast<ByteBarrier*>(shared_ + p_.plan.barriers)[i];
  }
  __device__ void arm(int i, uint32_t bytes) {
    bar(i).init();
    bar(i).expect(bytes);
  }
  const ResidentParams& p_;
  char* shared_;
  int block_;
  uint32_t peer_[4];  // from an address here to that in blocks thread % 4 + 0, 4, 8, 12
};

}  // namespace ridgeline::cuda::mlp
