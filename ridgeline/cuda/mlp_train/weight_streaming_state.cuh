#pragma once

// The shared memory of a block of the weight_streaming trainer, the passes in which weights stream
// through it, and how weights and inputs are loaded and stored.
//
// Warp w works on tiles w, w + 16, and so on of the summed dimension. Every lane copies what it
// will use into slots of its own in a ring buffer in shared memory, several tiles ahead, so a pass
// needs no barrier.
//
// Tiles have the layout of fragments.cuh with one more permutation: the 16 outputs of a tile are in
// the order in which an activation tile has its units, so that rows also serve as (transposed)
// columns. Row p < 8 of the tensor core's tile is unit 4 * (p / 2) + p % 2, and row 8 + p is that
// unit + 2.

#include <cstdint>

#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/device/grid_barrier.cuh"
#include "ridgeline/cuda/mlp_train/fragments.cuh"
#include "ridgeline/cuda/mlp_train/gather.cuh"
#include "ridgeline/cuda/mlp_train/weight_streaming_plan.h"

namespace ridgeline::cuda::mlp {

struct WeightStreamingParams {
  MlpTrainArgs args;
  WeightStreamingPlan plan;
  char* workspace;
};

template <typename T, int kSampleTiles, bool kMasters, int kParts>
class WeightStreamingState {
 protected:
  __device__ WeightStreamingState(const WeightStreamingParams& params, char* shared)
      : p_(params.plan),
        args_(params.args),
        shared_(shared),
        work_(params.workspace),
        barrier_(reinterpret_cast<uint32_t*>(params.workspace), params.plan.blocks),
        block_(blockIdx.x),
        warp_(threadIdx.x >> 5),
        lane_(threadIdx.x & 31),
        share_(1.0 / params.args.shape.batch) {}

  using Tile = WeightTile<T, kMasters>;
  using Slot = typename Tile::Slot;  // half a lane's tile: one row of 4 weights
  static constexpr int kRound = weight_streaming_round(kSampleTiles);
  static constexpr int kWeightSlots = kParts * (kMasters ? 2 : 1);
  static constexpr int kStageSlots = kWeightSlots + kSampleTiles;
  static constexpr int kDepth = weight_streaming_depth(kParts, kSampleTiles, kMasters);
  using Acts = Fragment<kSampleTiles>;

  // Sums of kParts x (16 samples x kSampleTiles) x 16 units, in the tensor core's accumulator
  // layout.
  struct Sums {
    float v[kParts][kSampleTiles][2][4] = {};
  };
  // A pass: tile j of the warp's list needs `parts` tiles of weights at w + j * w_tile + part *
  // w_part (in lanes' slots) and tile j of the activations.
  struct Pass {
    const uint4* w;
    const float4* master;  // null if the half weights suffice
    int64_t w_tile, w_part;
    const uint4* v;
    int tiles, parts;
  };

  __device__ char* work(int64_t at) const { return work_ + at; }
  __device__ uint4* lanes(int64_t at) const { return reinterpret_cast<uint4*>(work_ + at); }
  __device__ uint4* shared_lanes(int at) const { return reinterpret_cast<uint4*>(shared_ + at); }
  __device__ float* floats(int at) const { return reinterpret_cast<float*>(shared_ + at); }
  __device__ T* halves(int at) const { return reinterpret_cast<T*>(shared_ + at); }
  __device__ int own_first(int l) const { return block_ * p_.layer[l].own; }
  __device__ int own_count(int l) const {
    return max(0, min(p_.layer[l].own, p_.layer[l].out_tiles - own_first(l)));
  }
  __device__ const uint4* x(int t) const { return lanes(p_.x + int64_t{t & 1} * p_.x_bytes); }

  __device__ void arrive() {
    __syncthreads();
    if (threadIdx.x == 0) barrier_.arrive();
  }
  __device__ void wait() {
    if (threadIdx.x == 0) barrier_.wait();
    __syncthreads();
  }
  __device__ void grid_sync() {
    arrive();
    wait();
  }

  // Rows first..first + parts of layer l, with all its inputs.
  __device__ Pass rows(int l, int first, const uint4* v, bool with_masters) const {
    const auto& layer = p_.layer[l];
    const int64_t at = (int64_t{own_first(l)} + first) * layer.in_tiles;
    return {lanes(layer.w) + at * 32,
            with_masters ? reinterpret_cast<const float4*>(work(layer.master)) + at * 64 : nullptr,
            1,
            layer.in_tiles,
            v,
            layer.in_tiles,
            min(kParts, own_count(l) - first)};
  }
  // Columns of layer l: the block's own units of layer l - 1.
  __device__ Pass columns(int l, int first, const uint4* v) const {
    const auto& layer = p_.layer[l];
    const int64_t at = int64_t{own_first(l - 1)} + first;
    return {lanes(layer.w) + at * 32,
            kMasters ? reinterpret_cast<const float4*>(work(layer.master)) + at * 64 : nullptr,
            layer.in_tiles,
            1,
            v,
            layer.out_tiles,
            min(kParts, own_count(l - 1) - first)};
  }

  __device__ uint4* ring(int stage, int slot) const {
    return shared_lanes(p_.ring) + (stage * kStageSlots + slot) * kBlockThreads + threadIdx.x;
  }
  __device__ void fetch_weights(const Pass& pass, int stage, int j) {
    const int64_t at = j * pass.w_tile;
    for (int i = 0; i < pass.parts; ++i) {
      if (kMasters && pass.master) {
        const float4* from = pass.master + (at + i * pass.w_part) * 64 + lane_;
        copy_async_16(ring(stage, 2 * i), from);
        copy_async_16(ring(stage, 2 * i + 1), from + 32);
      } else {
        copy_async_16(ring(stage, i), pass.w + (at + i * pass.w_part) * 32 + lane_);
      }
    }
  }
  __device__ void fetch_acts(const Pass& pass, int stage, int j) {
#pragma unroll
    for (int s = 0; s < kSampleTiles; ++s) {
      copy_async_16(ring(stage, kWeightSlots + s), pass.v + (j * kSampleTiles + s) * 32 + lane_);
    }
  }
  __device__ int tile_of(int i) const { return warp_ + i * kWarps; }

  // Prefetches the weights of the first tiles, which do not depend on other blocks. A block barrier
  // must have passed since the last sums, which were in the ring.
  __device__ void prefetch(const Pass& pass) {
    for (int i = 0; i < kDepth && tile_of(i) < pass.tiles; ++i) fetch_weights(pass, i, tile_of(i));
    copy_async_commit();
  }
  // Calls f(tile, stage) for each of the warp's tiles, after prefetch().
  template <typename F>
  __device__ void stream(const Pass& pass, F&& f) {
    if (pass.parts <= 0) return;
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      if (tile_of(i) < pass.tiles) fetch_acts(pass, i, tile_of(i));
      copy_async_commit();
    }
    int stage = 0;
    for (int i = 0; tile_of(i) < pass.tiles; ++i) {
      copy_async_wait<kDepth - 1>();
      f(tile_of(i), stage);
      const int next = tile_of(i + kDepth);
      if (next < pass.tiles) {
        fetch_weights(pass, stage, next);
        fetch_acts(pass, stage, next);
      }
      copy_async_commit();
      stage = stage + 1 == kDepth ? 0 : stage + 1;
    }
    copy_async_wait<0>();
  }
  __device__ Acts acts(int stage) const {
    Acts a;
#pragma unroll
    for (int s = 0; s < kSampleTiles; ++s) set(a.r[s], *ring(stage, kWeightSlots + s));
    return a;
  }
  static __device__ void set(uint32_t (&r)[4], const uint4& v) {
    r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
  }

  // Adds the warps' sums and calls f(part, unit, sum, at) once per half slot: sum.xy are `unit` and
  // unit + 1 of one sample, sum.zw those of the sample 8 further; `at` counts half slots from the
  // pass's first tile. `live`: own tiles from there on.
  template <typename F>
  __device__ void reduce(const Sums& sums, int live, F&& f) {
    float4* mine = reinterpret_cast<float4*>(shared_ + p_.ring);
#pragma unroll
    for (int first = 0; first < kParts; first += kRound) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kRound && i < kParts - first; ++i) {
#pragma unroll
        for (int s = 0; s < kSampleTiles; ++s) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float(&v)[4] = sums.v[first + i][s][h];
            mine[(((warp_ * kRound + i) * kSampleTiles + s) * 2 + h) * 32 + lane_] = {v[0], v[1],
                                                                                      v[2], v[3]};
          }
        }
      }
      __syncthreads();
      const int parts = min(kRound, live - first);
      for (int e = threadIdx.x; e < min(parts, kParts - first) * kSampleTiles * 64;
           e += kBlockThreads) {
        const int h = e & 1, lane = (e >> 1) & 31, tile = e >> 6;
        float4 sum = {0, 0, 0, 0};
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          const float4 v = mine[((w * kRound * kSampleTiles + tile) * 2 + h) * 32 + lane];
          sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
        const int part = first + tile / kSampleTiles;
        f(part, 4 * (lane & 3) + 2 * h, sum, first * kSampleTiles * 64 + e);
      }
    }
  }

  // One tile of weights of a lane: two rows, to be multiplied or updated.
  struct Weights {
    Slot row[2];
    __device__ uint4 operand() const {
      const uint2 a = Tile::operand(row[0]), b = Tile::operand(row[1]);
      return {a.x, a.y, b.x, b.y};
    }
  };
  __device__ Weights weights(int stage, int part) const {
    Weights w;
    if constexpr (kMasters) {
      w.row[0] = *reinterpret_cast<float4*>(ring(stage, 2 * part));
      w.row[1] = *reinterpret_cast<float4*>(ring(stage, 2 * part + 1));
    } else {
      const uint4 v = *ring(stage, part);
      w.row[0] = {v.x, v.y}, w.row[1] = {v.z, v.w};
    }
    return w;
  }
  // Writes an updated tile back to where the pass read it.
  __device__ void put(const Pass& pass, int tile, int part, const Weights& w) {
    const int64_t at = tile * pass.w_tile + part * pass.w_part;
    __stcg(const_cast<uint4*>(pass.w) + at * 32 + lane_, w.operand());
    if constexpr (kMasters) {
      float4* to = const_cast<float4*>(pass.master) + at * 64 + lane_;
      __stcg(to, w.row[0]);
      __stcg(to + 32, w.row[1]);
    }
  }
  // w = keep * w - step * dy^T . y, from dy and y transposed: outputs x samples, samples x inputs.
  __device__ void update(Weights& w, const uint32_t (&dy)[kSampleTiles][4],
                         const uint32_t (&y)[kSampleTiles][4]) {
    float low[4] = {}, high[4] = {};
#pragma unroll
    for (int s = 0; s < kSampleTiles; ++s) {
      const uint32_t a[4] = {dy[s][0], dy[s][2], dy[s][1], dy[s][3]};
      mma_m16n8k16<T>(low, a, y[s][0], y[s][1]);
      mma_m16n8k16<T>(high, a, y[s][2], y[s][3]);
    }
    Tile::update(w.row[0], {low[0], low[1], high[0], high[1]}, keep_, step_);
    Tile::update(w.row[1], {low[2], low[3], high[2], high[3]}, keep_, step_);
  }
  __device__ void transposed(const Acts& a, uint32_t (&out)[kSampleTiles][4]) const {
#pragma unroll
    for (int s = 0; s < kSampleTiles; ++s) {
#pragma unroll
      for (int r = 0; r < 4; ++r) out[s][r] = transpose_8x8(a.r[s][r]);
    }
  }

  // Gathers this block's share of x(t), and its labels.
  __device__ void gather(int t) {
    const int64_t base = *args_.first + int64_t{t} * args_.shape.batch;
    if (warp_ == kWarps - 1) {
      gather_labels<kSampleTiles>(args_, base, t, lane_, 32,
                                  reinterpret_cast<int*>(shared_ + p_.labels));
    }
    uint4* out = const_cast<uint4*>(x(t));
    for (int i = block_ + p_.blocks * int(threadIdx.x); i < p_.x_bytes / 16;
         i += p_.blocks * kBlockThreads) {
      __stcg(out + i, gather_chunk<T, kSampleTiles>(args_, base, i));
    }
  }

  // Converts row-major weights to tiles, or back; the tiles are distributed over all warps of the
  // grid.
  template <bool kStore>
  __device__ void move_weights() {
    for (int l = 0; l < p_.layers; ++l) {
      const auto& layer = p_.layer[l];
      T* w = static_cast<T*>(args_.w[l]);
      const int64_t tiles = int64_t{layer.in_tiles} * layer.out_tiles;
      for (int64_t tile = block_ * kWarps + warp_; tile < tiles; tile += p_.blocks * kWarps) {
        uint4* at = lanes(layer.w) + tile * 32 + lane_;
        float4* master = reinterpret_cast<float4*>(work(layer.master)) + tile * 64 + lane_;
        Weights slot{};
        if constexpr (kStore && kMasters)
          slot.row[0] = __ldcg(master), slot.row[1] = __ldcg(master + 32);
        if constexpr (kStore && !kMasters) {
          const uint4 v = __ldcg(at);
          slot.row[0] = {v.x, v.y}, slot.row[1] = {v.z, v.w};
        }
        const int g = lane_ >> 2;
        for (int r = 0; r < 2; ++r) {
          const int out = int(tile / layer.in_tiles) * 16 + 4 * (g >> 1) + (g & 1) + 2 * r;
          for (int i = 0; i < 4; ++i) {
            const int in = int(tile % layer.in_tiles) * 16 + 4 * (lane_ & 3) + i;
            if (out >= layer.out || in >= layer.in) continue;
            const int64_t from = int64_t{out} * layer.in + in;
            if constexpr (kStore) {
              store_weight<T, kMasters>(slot.row[r], i, w, args_.master_w[l], from);
            } else {
              load_weight<T, kMasters>(slot.row[r], i, w, args_.master_w[l], from);
            }
          }
        }
        if constexpr (!kStore) {
          __stcg(at, slot.operand());
          if constexpr (kMasters) __stcg(master, slot.row[0]), __stcg(master + 32, slot.row[1]);
        }
      }
      move_bias<kStore>(l);
    }
  }

  template <bool kStore>
  __device__ void move_bias(int l) {
    const auto& layer = p_.layer[l];
    const bool top = l + 1 == p_.layers;
    if (kStore && top && block_ != 0) return;
    T* half = static_cast<T*>(args_.bias[l]);
    float* bias = floats(layer.bias);
    const int first = top ? 0 : own_first(l) * 16;
    for (int n = threadIdx.x; n < 16 * layer.own; n += kBlockThreads) {
      const bool real = first + n < layer.out;
      if constexpr (kStore) {
        if (!real) continue;
        half[first + n] = T(bias[n]);
        if (kMasters) args_.master_bias[l][first + n] = bias[n];
      } else {
        bias[n] = !real      ? 0.0f
                  : kMasters ? args_.master_bias[l][first + n]
                             : float(half[first + n]);
      }
    }
  }

  static constexpr int sample_stride_ = sample_stride(kSampleTiles);
  const WeightStreamingPlan& p_;
  const MlpTrainArgs& args_;
  char* shared_;
  char* work_;
  GridBarrier barrier_;
  int block_, warp_, lane_;
  double share_;  // the weight of one sample in the mean
  float keep_ = 1.0f, step_ = 0.0f;
};

}  // namespace ridgeline::cuda::mlp
