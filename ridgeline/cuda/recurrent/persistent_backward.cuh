#pragma once

#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/recurrent/cell.cuh"
#include "ridgeline/cuda/recurrent/exchange.cuh"
#include "ridgeline/cuda/recurrent/persistent.h"

namespace ridgeline::cuda::recurrent {

// dh[units] = w_hh^T . gate gradients: the inner extent is as many times longer as there are gates.
// Where it is too long for one block, a cluster of four shares it out: each multiplies a quarter of
// it for the units of all four, and sends each block the sums of its own units.
template <int kClusterBlocks, int kRowTiles>
struct BackwardRows {
  static constexpr int kCluster = kClusterBlocks, kTiles = kRowTiles;
  static constexpr int kUnits = 16 * kTiles / kCluster;  // 16, or 8 or 12 in a cluster
  static constexpr int kLanes = kUnits == 8 ? 8 : 16;    // threads for the units of an item
  static constexpr int kPitch = 16 * kTiles + 4;
};

constexpr int kReceiveRing = 4;  // a block is never more than two steps ahead of its cluster

template <typename T>
struct PersistentBackwardParams {
  PersistentBackward<T> args;
  int tiles, group_batch, octets, item_tiles, buffers, pause;
  int pieces;  // of 32 places, of a block
  int64_t slot;
};

template <typename T, Cell kCell, typename Rows, int kPieces, int kOwn>
class BackwardPass {
 public:
  static constexpr int kGates = cell_gates(kCell), kSaved = cell_saved(kCell);
  static constexpr int kVectors = cell_vectors(kCell);

  __device__ explicit BackwardPass(const PersistentBackwardParams<T>& p)
      : p_(p), s_(p.args.sequence) {
    tile_ = blockIdx.x % p.tiles;
    const int group = blockIdx.x / p.tiles;
    rank_ = tile_ % Rows::kCluster;
    first_item_ = p.args.first_item + group * p.group_batch;
    items_ = min(p.group_batch, p.args.first_item + p.args.items - first_item_);
    exchange_ = p.args.exchange + group * p.slot * s_.steps;
    unit_in_block_ = threadIdx.x % Rows::kLanes;
    // Lanes without a unit stand past the last one.
    unit_ = unit_in_block_ < Rows::kUnits ? tile_ * Rows::kUnits + unit_in_block_ : 1 << 30;
    unit_octets_ = (s_.hidden + 7) / 8;
    warp_ = threadIdx.x / 32;
  }

  // Shared memory: partial sums, then what the cluster sends, then its barriers.
  __device__ void run(float* shared) {
    if (items_ <= 0) return;  // all of a cluster: the last launch of several may have fewer groups
    const int buffer = kWarps * 8 * p_.item_tiles * Rows::kPitch;
    received_ = shared + p_.buffers * buffer;
    barriers_ = reinterpret_cast<ByteBarrier*>(received_ + kReceiveRing * received_floats());
    if constexpr (Rows::kCluster > 1) {
      if (threadIdx.x == 0) {
        for (int i = 0; i < kReceiveRing; ++i) {
          barriers_[i].init();
          barriers_[i].expect(sent_bytes());
        }
      }
      cluster_sync();
    }
    uint32_t a[kPieces][2][Rows::kTiles][4];
    load_weights(a);
    load_states();
    const int last = min((rank_ + 1) * p_.pieces, (p_.octets + 3) / 4);
    const int first = rank_ * p_.pieces + slice() * kPieces;
    const LaneShare share(first, last, p_.octets, items_, p_.item_tiles);
    const int of_warp = 8 * p_.item_tiles * Rows::kPitch;
    SlotProduct<T, kPieces, Rows::kTiles, Rows::kPitch> product;
    fetch(s_.steps - 1);
    for (int turn = 0; turn < s_.steps; ++turn) {
      const int step = s_.steps - 1 - turn;
      uint4* slot = exchange_ + turn * p_.slot;
      float* partial = p_.buffers == 2 && (turn & 1) ? shared + buffer : shared;
      float gradients[kOwn][4];
      differentiate(step, slot, gradients);
      if (p_.buffers == 1 || p_.pause >= 0) __syncthreads();
      // What follows takes other warps about as long as the gradients take to get round.
      if (!has(0) && p_.pause > 0) wait_cycles(p_.pause);
      fetch(step - 1);
      store_gradients(step, gradients);
      if (step == 0 && p_.args.dh0 == nullptr) break;
      product.begin(slot, share);
      product.finish(a, slot, share, partial + warp_ * of_warp);
      __syncthreads();
      gather_sums(turn, partial);
    }
    store_states();
    if constexpr (Rows::kCluster > 1) cluster_sync();  // no block leaves while others send to it
  }

 private:
  static constexpr int kItemsApart = kThreads / Rows::kLanes;
  static constexpr int kLoads = kSaved == 0 ? 2 : kSaved + 2;  // saved (or y), before, dy

  // Which part of the inner extent this warp has: in other blocks other warps, so that not all ask
  // for the same memory at once.
  __device__ int slice() const { return (warp_ + tile_) % kWarps; }
  __device__ int item(int i) const { return threadIdx.x / Rows::kLanes + i * kItemsApart; }
  __device__ bool has(int i) const { return item(i) < items_; }
  __device__ int received_floats() const {
    return Rows::kCluster > 1 ? Rows::kCluster * 8 * p_.item_tiles * Rows::kUnits : 0;
  }
  __device__ uint32_t sent_bytes() const { return Rows::kCluster * items_ * Rows::kUnits * 4; }

  // Place k of the inner extent is gate k / (8 * unit_octets), unit k % (8 * unit_octets).
  __device__ float weight(int unit, int octet, int e) const {
    const int gate = octet / unit_octets_, from = octet % unit_octets_ * 8 + e;
    if (octet >= p_.octets || from >= s_.hidden || unit >= s_.hidden) return 0.0f;
    return float(p_.args.w_hh[(int64_t(gate) * s_.hidden + from) * s_.hidden + unit]);
  }

  __device__ void load_weights(uint32_t (&a)[kPieces][2][Rows::kTiles][4]) const {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int first_unit = (tile_ - rank_) * Rows::kUnits;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int piece = rank_ * p_.pieces + slice() * kPieces + p;
      const int octet = piece < (rank_ + 1) * p_.pieces ? 4 * piece + t : p_.octets;
#pragma unroll
      for (int m = 0; m < Rows::kTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int unit = first_unit + 16 * m + 8 * half + g;
          uint32_t words[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            words[e] = Pair<T>::pack(weight(unit, octet, 2 * e), weight(unit, octet, 2 * e + 1));
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
    const auto& args = p_.args;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const bool there = has(i) && unit_ < s_.hidden;
      const int64_t at = int64_t(first_item_ + item(i)) * s_.hidden + unit_;
      dh_[i] = there && args.dhT != nullptr ? float(args.dhT[at]) : 0.0f;
      dc_[i] = there && args.dcT != nullptr ? float(args.dcT[at]) : 0.0f;
      length_[i] = has(i) ? s_.length(first_item_ + item(i)) : 0;
    }
  }

  // What a step needs from the way forward, on its way while sums are waited for.
  __device__ void fetch(int step) {
    if (step < 0 || unit_ >= s_.hidden) return;
    const auto& args = p_.args;
    const int H = s_.hidden;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!has(i) || step >= length_[i]) continue;
      const int b = first_item_ + item(i);
      const int64_t at = s_.place(b, s_.time(step, length_[i]));
      loads_[i][kLoads - 1] = float(args.dy[at * H + unit_]);
      if constexpr (kSaved == 0) {
        loads_[i][0] = float(args.y[at * H + unit_]);
      } else {
#pragma unroll
        for (int v = 0; v < kSaved; ++v) {
          loads_[i][v] = float(args.reserve[(at * kSaved + v) * H + unit_]);
        }
        loads_[i][kSaved] = before(step, i, b);
      }
    }
  }

  // c of the step before for lstm, h for gru.
  __device__ float before(int step, int i, int b) const {
    const int H = s_.hidden;
    if (step > 0) {
      const int64_t at = s_.place(b, s_.time(step - 1, length_[i]));
      return kCell == Cell::lstm ? float(p_.args.reserve[(at * kSaved + 4) * H + unit_])
                                 : float(p_.args.y[at * H + unit_]);
    }
    const T* first = kCell == Cell::lstm ? p_.args.c0 : p_.args.h0;
    return first != nullptr ? float(first[int64_t(b) * H + unit_]) : 0.0f;
  }

  // The gate gradients of a step, handed over. dh_ becomes what goes to the step before directly.
  __device__ void differentiate(int step, uint4* slot, float (&gradients)[kOwn][4]) {
    const int H = s_.hidden;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (i > 0 && i * kItemsApart >= items_) break;
#pragma unroll
      for (int v = 0; v < 4; ++v) gradients[i][v] = 0.0f;
      if (has(i) && step < length_[i] && unit_ < H) {
        UnitSaved<float> saved{};
        if constexpr (kSaved == 0) {
          saved.y = loads_[i][0];
        } else {
#pragma unroll
          for (int v = 0; v < kSaved; ++v) saved.gates[v] = loads_[i][v];
          saved.before = loads_[i][kSaved];
        }
        dh_[i] =
            unit_grad<kCell, FastMath>(saved, dh_[i] + loads_[i][kLoads - 1], dc_[i], gradients[i]);
      }
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const float mine = gradients[i][hidden_vector(kCell, gate)];
        const float other = __shfl_down_sync(~0u, mine, 1);
        if (has(i) && (unit_in_block_ & 1) == 0 && unit_ / 8 < unit_octets_) {
          hand_over(slot, slot_index(gate * unit_octets_ + unit_ / 8, item(i), p_.item_tiles),
                    (unit_ & 7) / 2, Pair<T>::pack(mine, other));
        }
      }
    }
  }

  __device__ void store_gradients(int step, const float (&gradients)[kOwn][4]) const {
    const int H = s_.hidden;
    if (unit_ >= H) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!has(i)) continue;
      const int b = first_item_ + item(i);
      const int64_t at = s_.place(b, s_.time(step, length_[i]));
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        p_.args.gate_gradients[(at * kVectors + v) * H + unit_] = T(gradients[i][v]);
      }
    }
  }

  // dh_ += the product's sums of the thread's pairs.
  __device__ void gather_sums(int turn, const float* partial) {
    const int apart = 8 * p_.item_tiles * Rows::kPitch;
    if constexpr (Rows::kCluster == 1) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (!has(i)) continue;
        const float* at = partial + item(i) * Rows::kPitch + unit_in_block_;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) dh_[i] += at[warp * apart];
      }
    } else {
      const int ring = turn % kReceiveRing;
      send_sums(ring, partial, apart);
      const uint32_t parity = (turn / kReceiveRing) & 1;
      barriers_[ring].wait(parity);
      if (threadIdx.x == 0) barriers_[ring].expect(sent_bytes());
      const float* received = received_ + ring * received_floats();
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (!has(i) || unit_in_block_ >= Rows::kUnits) continue;
#pragma unroll
        for (int from = 0; from < Rows::kCluster; ++from) {
          dh_[i] += received[(from * 8 * p_.item_tiles + item(i)) * Rows::kUnits + unit_in_block_];
        }
      }
    }
  }

  // Four units of an item at a time, to the block that has them.
  __device__ void send_sums(int ring, const float* partial, int apart) const {
    constexpr int kQuads = 4 * Rows::kTiles;  // of an item
    for (int task = threadIdx.x; task < items_ * kQuads; task += kThreads) {
      const int n = task / kQuads, quad = task % kQuads;
      const float* at = partial + n * Rows::kPitch + 4 * quad;
      float4 sum = {};
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        const float4 v = *reinterpret_cast<const float4*>(at + warp * apart);
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
      }
      const uint32_t to = uint32_t(4 * quad / Rows::kUnits);
      const float* place = received_ + ring * received_floats() +
                           (rank_ * 8 * p_.item_tiles + n) * Rows::kUnits + 4 * quad % Rows::kUnits;
      store_async_16(cluster_address(shared_address(place), to),
                     uint4{__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z),
                           __float_as_uint(sum.w)},
                     cluster_address(shared_address(&barriers_[ring]), to));
    }
  }

  __device__ void store_states() const {
    if (unit_ >= s_.hidden) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!has(i)) continue;
      const int64_t at = int64_t(first_item_ + item(i)) * s_.hidden + unit_;
      if (p_.args.dh0 != nullptr) p_.args.dh0[at] = T(dh_[i]);
      if (kCell == Cell::lstm && p_.args.dc0 != nullptr) p_.args.dc0[at] = T(dc_[i]);
    }
  }

  const PersistentBackwardParams<T>& p_;
  const Sequence& s_;
  uint4* exchange_;
  float* received_;
  ByteBarrier* barriers_;
  int tile_, rank_, first_item_, items_, unit_, unit_in_block_, unit_octets_, warp_;
  float loads_[kOwn][kLoads] = {}, dh_[kOwn], dc_[kOwn];
  int length_[kOwn];
};

template <typename T, Cell kCell, typename Rows, int kPieces, int kOwn>
__global__ void __launch_bounds__(kThreads, 1)
    rnn_backward_persistent_kernel(const __grid_constant__ PersistentBackwardParams<T> p) {
#if __CUDA_ARCH__ >= 900  // the rows refuse others
  extern __shared__ __align__(16) float shared[];
  BackwardPass<T, kCell, Rows, kPieces, kOwn>(p).run(shared);
#endif
}

}  // namespace ridgeline::cuda::recurrent
