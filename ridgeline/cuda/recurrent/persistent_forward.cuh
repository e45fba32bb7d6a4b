#pragma once

#include "ridgeline/cuda/recurrent/cell.cuh"
#include "ridgeline/cuda/recurrent/exchange.cuh"
#include "ridgeline/cuda/recurrent/persistent.h"

namespace ridgeline::cuda::recurrent {

// Rows of a block's product: of cells with several gates 8 units x 4 gates (gru's fourth is empty)
// in two tiles of 16, once or twice; else 16 units.
template <Cell kCell, int kRowTiles>
struct ForwardRows {
  static constexpr bool kGated = cell_gates(kCell) > 1;
  static constexpr int kTiles = kRowTiles, kUnits = kGated ? 4 * kTiles : 16;
  static constexpr int kPitch =
      16 * kTiles + 4;  // floats an item: lanes of a store miss each other
  static __device__ int gate(int row) { return kGated ? row % 32 / 8 : 0; }
  static __device__ int unit(int row) { return kGated ? row / 32 * 8 + row % 8 : row; }
  // Of a unit's first gate; the others follow 8 rows apart.
  static __device__ int row(int unit) { return kGated ? unit / 8 * 32 + unit % 8 : unit; }
};

template <typename T>
struct PersistentForwardParams {
  PersistentForward<T> args;
  int tiles, groups, group_batch, octets, item_tiles, buffers, pause;
  int64_t slot;  // uint4s a step, of a group
};

template <typename T, Cell kCell, int kRowTiles, int kPieces, int kOwn>
class ForwardPass {
 public:
  using Rows = ForwardRows<kCell, kRowTiles>;
  using Params = PersistentForwardParams<T>;
  static constexpr int kGates = cell_gates(kCell), kSaved = cell_saved(kCell);

  __device__ explicit ForwardPass(const Params& p) : p_(p), args_(p.args), s_(args_.sequence) {
    tile_ = blockIdx.x % p.tiles;
    const int group = blockIdx.x / p.tiles % p.groups;
    first_item_ = args_.first_item + group * p.group_batch;
    items_ = min(p.group_batch, args_.first_item + args_.items - first_item_);
    exchange_ = args_.exchange + group * p.slot * s_.steps;
    unit_in_block_ = threadIdx.x % Rows::kUnits;
    unit_ = tile_ * Rows::kUnits + unit_in_block_;
    warp_ = threadIdx.x / 32;
  }

  __device__ void run(float* shared) {
    if (items_ <= 0) return;  // the last launch of several may have fewer groups
    uint32_t a[kPieces][2][Rows::kTiles][4];
    load_weights(a);
    load_states();
    const int of_warp = 8 * p_.item_tiles * Rows::kPitch, buffer = kWarps * of_warp;
    const LaneShare share(piece(), piece() + kPieces, p_.octets, items_, p_.item_tiles);
    SlotProduct<T, kPieces, Rows::kTiles, Rows::kPitch> product;
    fetch_inputs(0);
    for (int step = 0; step < s_.steps; ++step) {
      const uint4* slot = exchange_ + step * p_.slot;
      float* partial = p_.buffers == 2 && (step & 1) ? shared + buffer : shared;
      product.begin(slot, share);
      product.finish(a, slot, share, partial + warp_ * of_warp);
      __syncthreads();
      float gates[kOwn][4];
      advance_all(step, partial, gates);
      if (p_.buffers == 1 || p_.pause >= 0) __syncthreads();
      // What follows takes other warps about as long as the state takes to get round.
      if (!has(0) && p_.pause > 0) wait_cycles(p_.pause);
      fetch_inputs(step + 1);
      store_all(step, gates);
    }
    store_states();
  }

 private:
  static constexpr int kItemsApart = kThreads / Rows::kUnits;  // between a thread's items

  // Which part of the inner extent this warp has: in other blocks other warps, so that not all ask
  // for the same memory at once.
  __device__ int slice() const { return (int(threadIdx.x / 32) + tile_) % kWarps; }
  __device__ int piece() const { return slice() * kPieces; }
  __device__ int item(int i) const { return threadIdx.x / Rows::kUnits + i * kItemsApart; }
  __device__ bool has(int i) const { return item(i) < items_; }

  // The row of a gate; null where there is none.
  __device__ const T* weights(int gate, int unit) const {
    const T* all = args_.w_hh;
    if (unit >= s_.hidden || gate >= kGates || all == nullptr) return nullptr;
    return all + (int64_t(gate) * s_.hidden + unit) * s_.hidden;
  }

  __device__ void load_weights(uint32_t (&a)[kPieces][2][Rows::kTiles][4]) const {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, H = s_.hidden;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
#pragma unroll
      for (int m = 0; m < Rows::kTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = 16 * m + 8 * half + g, gate = Rows::gate(row);
          const int unit = tile_ * Rows::kUnits + Rows::unit(row);
          const int first = 32 * (piece() + p) + 8 * t;
          const T* w = weights(gate, unit);
          const bool there = w != nullptr;
          w += first;
          uint32_t words[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float lo = there && first + 2 * e < H ? float(w[2 * e]) : 0.0f;
            const float hi = there && first + 2 * e + 1 < H ? float(w[2 * e + 1]) : 0.0f;
            words[e] = Pair<T>::pack(lo, hi);
          }
          a[p][0][m][half] = words[0];
          a[p][0][m][2 + half] = words[1];
          a[p][1][m][half] = words[2];
          a[p][1][m][2 + half] = words[3];
        }
      }
    }
  }

  __device__ void load_states() {
    const auto& args = args_;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      const int at = gate * s_.hidden + unit_;
      const bool there = unit_ < s_.hidden;
      bias_x_[gate] = there && args.b_ih ? args.b_ih[at] : 0.0f;
      bias_h_[gate] = there && args.b_hh ? args.b_hh[at] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const bool there = has(i) && unit_ < s_.hidden;
      const int64_t at = int64_t(first_item_ + item(i)) * s_.hidden + unit_;
      h_[i] = there && args.h0 != nullptr ? float(args.h0[at]) : 0.0f;
      c_[i] = there && args.c0 != nullptr ? float(args.c0[at]) : 0.0f;
      length_[i] = has(i) ? s_.length(first_item_ + item(i)) : 0;
    }
  }

  // The sums with x of a step, on their way while the state is waited for.
  __device__ void fetch_inputs(int step) {
    if (step >= s_.steps || unit_ >= s_.hidden) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!has(i) || step >= length_[i]) continue;
      const int64_t row = s_.row(first_item_ + item(i), s_.time(step, length_[i]));
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        x_[i][gate] = __ldcs(args_.from_x + (row * kGates + gate) * s_.hidden + unit_);
      }
    }
  }

  // The new state of the thread's pairs, handed over.
  __device__ void advance_all(int step, const float* partial, float (&gates)[kOwn][4]) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (i > 0 && i * kItemsApart >= items_) break;
      if (has(i) && step < length_[i]) advance(i, partial, gates[i]);
      const float other = __shfl_down_sync(~0u, h_[i], 1);
      if (has(i) && (unit_in_block_ & 1) == 0 && step + 1 < s_.steps) {
        hand_over(exchange_ + (step + 1) * p_.slot, slot_index(unit_ / 8, item(i), p_.item_tiles),
                  (unit_ & 7) / 2, Pair<T>::pack(h_[i], other));
      }
    }
  }

  __device__ void store_all(int step, const float (&gates)[kOwn][4]) const {
    if (unit_ >= s_.hidden) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (has(i)) store(step, i, gates[i]);
    }
  }

  __device__ void advance(int i, const float* partial, float (&gates)[4]) {
    const float* at = partial + item(i) * Rows::kPitch + Rows::row(unit_in_block_);
    float sums[kGates];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) sums[gate] = bias_h_[gate];
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        sums[gate] += at[warp * 8 * p_.item_tiles * Rows::kPitch + 8 * gate];
      }
    }
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      gates[gate] =
          gate_value<kCell, FastMath>(gate, x_[i][gate] + bias_x_[gate], sums[gate], gates);
      if (kCell == Cell::gru && gate == 2) gates[3] = sums[2];
    }
    h_[i] = unit_ < s_.hidden ? float(T(next_state<kCell, FastMath>(gates, h_[i], c_[i]))) : 0.0f;
  }

  __device__ void store(int step, int i, const float (&gates)[4]) const {
    const int b = first_item_ + item(i), H = s_.hidden;
    const bool live = step < length_[i];
    const int64_t at = s_.place(b, s_.time(step, length_[i]));
    args_.y[at * H + unit_] = T(live ? h_[i] : 0.0f);
    if (kSaved == 0 || args_.reserve == nullptr) return;
    T* reserve = args_.reserve + at * kSaved * H + unit_;
#pragma unroll
    for (int v = 0; v < (kSaved < 4 ? kSaved : 4); ++v) reserve[v * H] = T(live ? gates[v] : 0.0f);
    if constexpr (kCell == Cell::lstm) reserve[4 * H] = T(live ? c_[i] : 0.0f);
  }

  __device__ void store_states() const {
    if (unit_ >= s_.hidden) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!has(i)) continue;
      const int64_t at = int64_t(first_item_ + item(i)) * s_.hidden + unit_;
      if (args_.hT != nullptr) args_.hT[at] = T(h_[i]);
      if (kCell == Cell::lstm && args_.cT != nullptr) args_.cT[at] = T(c_[i]);
    }
  }

  const Params& p_;
  const PersistentForward<T>& args_;
  const Sequence& s_;
  uint4* exchange_;
  int tile_, first_item_, items_, unit_, unit_in_block_, warp_;
  float bias_x_[kGates], bias_h_[kGates];
  float x_[kOwn][kGates] = {}, h_[kOwn], c_[kOwn];
  int length_[kOwn];
};

template <typename T, Cell kCell, int kRowTiles, int kPieces, int kOwn>
__global__ void __launch_bounds__(kThreads, 1)
    rnn_forward_persistent_kernel(const __grid_constant__ PersistentForwardParams<T> p) {
#if __CUDA_ARCH__ >= 900  // the rows refuse others
  extern __shared__ __align__(16) float shared[];
  ForwardPass<T, kCell, kRowTiles, kPieces, kOwn>(p).run(shared);
#endif
}

// Slot 0 of each group takes the initial state; all others are absent.
template <typename T>
__global__ void rnn_exchange_begin_kernel(PersistentForwardParams<T> p) {
  const PersistentForward<T>& args = p.args;
  const Sequence& s = args.sequence;
  const int64_t group_slots = p.slot * s.steps;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < group_slots * p.groups;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int group = int(i / group_slots);
    const int64_t within = i % group_slots;
    uint32_t words[4] = {kAbsent, kAbsent, kAbsent, kAbsent};
    if (within < p.slot) {
      const int lane = int(within & 31), tile = int(within / 32);
      const int unit = 8 * (tile / p.item_tiles * 4 + (lane & 3));
      const int local = tile % p.item_tiles * 8 + (lane >> 2);
      const int item = args.first_item + group * p.group_batch + local;
      const bool live = local < p.group_batch && item < args.first_item + args.items;
      for (int e = 0; e < 4; ++e) {
        float v[2] = {};
        for (int k = 0; k < 2; ++k) {
          const int u = unit + 2 * e + k;
          if (live && args.h0 != nullptr && u < s.hidden) {
            v[k] = float(args.h0[int64_t(item) * s.hidden + u]);
          }
        }
        words[e] = Pair<T>::pack(v[0], v[1]);
      }
    }
    args.exchange[i] = uint4{words[0], words[1], words[2], words[3]};
  }
}

}  // namespace ridgeline::cuda::recurrent
