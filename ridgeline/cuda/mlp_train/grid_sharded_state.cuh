#pragma once

// The shared memory of a block of the grid_sharded function, and how weights and activations are
// loaded and stored. Tiles have the layouts of fragments.cuh.

#include <cstdint>

#include "ridgeline/cuda/device/grid_barrier.cuh"
#include "ridgeline/cuda/mlp_train/fragments.cuh"
#include "ridgeline/cuda/mlp_train/grid_sharded.h"
#include "ridgeline/cuda/mlp_train/softmax.cuh"

namespace ridgeline::cuda::mlp {

struct GridShardedParams {
  MlpTrainArgs args;
  const float2* rates;    // [steps] {keep, step}: w = keep * w - step * (gradient summed)
  const uint8_t* labels;  // [steps][32]
  const uint4* x;         // [steps][input tile][sample tile][lane]
  char* exchange;         // y(0..H-1), then dy(1): [matrix][ring][unit tile][sample tile][lane]
  size_t matrix;          // bytes of one exchanged matrix
  int input_tiles;
};

constexpr uint32_t kNothing = ~0u;  // marks an empty buffer: no result rounds to this NaN

// Offsets in shared memory, in bytes. kTiles: tiles of 16 units, a warp's share of a layer. kTight:
// the master weights of wide layers leave no room for y(0), which is read from L2 again, for a
// second buffer of sums, nor for more than two of the second eight classes.
template <int kHidden, int kTiles, bool kMasters>
struct GridShardedMap {
  static constexpr bool kTight = kMasters && kTiles > 2;
  static constexpr int kUnitTiles = kGridShardedWarps * kTiles;
  static constexpr int kSlotBytes = 32 * (kMasters ? 16 : 8);  // per tile of weights
  static constexpr int kStride = 40;       // of own values, in halves: avoids bank conflicts
  static constexpr int kClassStride = 24;  // of dlogits
  static constexpr int kOwnBytes = 8 * kStride * 2;
  static constexpr int kLayerBytes = kUnitTiles * kSlotBytes;

  static constexpr int kFirst = 0;                                            // rows of layer 0
  static constexpr int kRows = kFirst + kGridShardedInputTiles * kSlotBytes;  // of layers 1..
  static constexpr int kColumns = kRows + (kHidden - 1) * kLayerBytes;        // of layers 1..
  static constexpr int kTop = kColumns + (kHidden - 1) * kLayerBytes;         // 8 classes
  static constexpr int kHighTop = kTop + kLayerBytes;                         // the other classes
  static constexpr int kHighLanes =
      kTight ? 4 * kGridShardedTightClasses - 32 : 32;                  // lanes of their slots
  static constexpr int kY0 = kHighTop + kLayerBytes * kHighLanes / 32;  // y(0), all units
  static constexpr int kSums =
      kY0 + (kTight ? 0 : kUnitTiles * kGridShardedTileBytes);        // [2][warp]
  static constexpr int kSumBytes = kGridShardedWarps * 2 * 512;       // bytes of one of them
  static constexpr int kOwnY = kSums + (kTight ? 1 : 2) * kSumBytes;  // y(0) twice, then y(1)..
  static constexpr int kOwnDy = kOwnY + (kHidden + 1) * kOwnBytes;
  static constexpr int kLogits = kOwnDy + kHidden * kOwnBytes;             // float [32][17]
  static constexpr int kDlogits = kLogits + kGridShardedSamples * 17 * 4;  // [sample][class]
  static constexpr int kDlogitsT = kDlogits + kGridShardedSamples * kClassStride * 2;
  static constexpr int kBias = kDlogitsT + kGridShardedClasses * kStride * 2;  // float [layer][8]
  static constexpr int kTopBias = kBias + kHidden * 8 * 4;
  static constexpr int kRowLoss = kTopBias + kGridShardedClasses * 4;
  static constexpr int kRowCorrect = kRowLoss + kGridShardedSamples * 4;
  static constexpr int kBytes = kRowCorrect + kGridShardedSamples * 4;
  static_assert(kBytes <= 227 * 1024);
};

template <typename T, int kHidden, int kTiles, bool kMasters>
class GridShardedState {
 protected:
  __device__ GridShardedState(const GridShardedParams& params, char* shared)
      : p_(params),
        args_(params.args),
        shared_(shared),
        block_(blockIdx.x),
        warp_(__shfl_sync(~0u, int(threadIdx.x >> 5), 0)),
        lane_(threadIdx.x & 31) {}

  using Map = GridShardedMap<kHidden, kTiles, kMasters>;
  using Tile = WeightTile<T, kMasters>;
  using Slot = typename Tile::Slot;
  static constexpr int kThreads = 32 * kGridShardedWarps;
  static constexpr int kStride = Map::kStride;
  template <int kCount>
  struct Tiles {
    Fragment<2> tile[kCount];
  };
  using Units = Tiles<kTiles>;
  using Inputs = Tiles<kGridShardedInputTiles / kGridShardedWarps>;

  __device__ Slot* slots(int at) const { return reinterpret_cast<Slot*>(shared_ + at) + lane_; }
  __device__ Slot* rows(int l) const {
    return slots(l == 0 ? Map::kFirst : Map::kRows + (l - 1) * Map::kLayerBytes);
  }
  __device__ Slot* columns(int l) const {
    return slots(Map::kColumns + (l - 1) * Map::kLayerBytes);
  }
  // A tile of the last layer's weights: the first eight classes, or the others.
  __device__ Slot top(int n, int tile) const {
    if (n == 0) return slots(Map::kTop)[tile * 32];
    return lane_ < Map::kHighLanes ? slots(Map::kHighTop)[tile * Map::kHighLanes] : Slot{};
  }
  __device__ void set_top(int n, int tile, const Slot& slot) const {
    if (n == 0) {
      slots(Map::kTop)[tile * 32] = slot;
    } else if (lane_ < Map::kHighLanes) {
      slots(Map::kHighTop)[tile * Map::kHighLanes] = slot;
    }
  }
  __device__ float* floats(int at) const { return reinterpret_cast<float*>(shared_ + at); }
  __device__ T* halves(int at) const { return reinterpret_cast<T*>(shared_ + at); }
  __device__ float* bias(int l) const { return floats(Map::kBias) + 8 * l; }
  __device__ T* own_y(int l, int t) const {
    return halves(Map::kOwnY + (l == 0 ? t & 1 : l + 1) * Map::kOwnBytes);
  }
  __device__ T* own_dy(int l) const { return halves(Map::kOwnDy + l * Map::kOwnBytes); }
  __device__ int width(int l) const { return args_.shape.sizes[l + 1]; }
  __device__ int tiles(int l) const { return (width(l) + 15) >> 4; }
  __device__ int tile_of(int i) const { return warp_ + kGridShardedWarps * i; }

  // The exchanged matrices: y(l), followed by dy(1).
  static constexpr int kDy1 = kHidden;
  __device__ uint4* exchanged(int what, int t) const {
    return reinterpret_cast<uint4*>(
        p_.exchange + (what * kGridShardedRing + (t & (kGridShardedRing - 1))) * p_.matrix);
  }

  static __device__ uint4 load_relaxed(const uint4* p) { return FromL2::load(p); }
  static __device__ bool empty(const uint32_t (&r)[4]) {
    return max(max(r[0], r[1]), max(r[2], r[3])) == kNothing;
  }
  static __device__ void put(uint32_t (&r)[4], const uint4& v) {
    r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
  }

  // Waits for this warp's tiles of an exchanged matrix of `count` tiles; 0 past the last.
  __device__ void receive(const uint4* from, int count, Units& to) const {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const bool there = tile_of(i) < count;
        put(to.tile[i].r[s],
            there ? load_relaxed(from + (tile_of(i) * 2 + s) * 32 + lane_) : uint4{0, 0, 0, 0});
      }
    }
    while (true) {
      bool again[kTiles][2], any = false;
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        any |= again[i >> 1][i & 1] = empty(to.tile[i >> 1].r[i & 1]);
      }
      if (!__any_sync(~0u, any)) break;
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        if (again[i >> 1][i & 1]) {
          put(to.tile[i >> 1].r[i & 1],
              load_relaxed(from + (tile_of(i >> 1) * 2 + (i & 1)) * 32 + lane_));
        }
      }
    }
  }
  // Reads tiles that are known to have arrived, or lie in the block's own memory.
  template <int kCount>
  __device__ void load(const uint4* from, int count, Tiles<kCount>& to) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        put(to.tile[i].r[s], tile_of(i) < count
                                 ? load_relaxed(from + (tile_of(i) * 2 + s) * 32 + lane_)
                                 : uint4{0, 0, 0, 0});
      }
    }
  }
  __device__ void load_inputs(int t, Inputs& to) const {
    load(p_.x + int64_t{t} * p_.input_tiles * 64, p_.input_tiles, to);
  }
  __device__ uint4* y0_slot(int i, int s) const {
    return reinterpret_cast<uint4*>(shared_ + Map::kY0) + (tile_of(i) * 2 + s) * 32 + lane_;
  }
  __device__ void keep_y0(const Units& from) const {
    if constexpr (!Map::kTight) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        const auto& r = from.tile[i >> 1].r[i & 1];
        *y0_slot(i >> 1, i & 1) = {r[0], r[1], r[2], r[3]};
      }
    }
  }
  __device__ void load_y0(int t, Units& to) const {
    if constexpr (Map::kTight) {
      load(exchanged(0, t), tiles(0), to);
    } else {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) put(to.tile[i >> 1].r[i & 1], *y0_slot(i >> 1, i & 1));
    }
  }

  // Sends word e & 3 of the slot of own units 4 * quad.. and samples g, g + 8, and clears the same
  // word of the buffer of two steps before.
  __device__ void send(int what, int t, int e, int quad, int sample_tile, int g,
                       uint32_t word) const {
    const int all = 2 * block_ + quad;
    const int at = (((all >> 2) * 2 + sample_tile) * 32 + g * 4 + (all & 3)) * 4 + (e & 3);
    if (word == kNothing) word = 0x7fff7fffu;
    store_relaxed(reinterpret_cast<uint32_t*>(exchanged(what, t)) + at, word);
    store_relaxed(reinterpret_cast<uint32_t*>(exchanged(what, t + 2)) + at, kNothing);
  }
  static __device__ void store_relaxed(uint32_t* to, uint32_t word) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
  }

  // Copies weights between global memory and slots; each lane copies those it uses. Columns are not
  // stored back.
  template <bool kStore>
  __device__ void move_weights() const {
    const auto move_slots = [&](int l, Slot* all, int count, int k_end, bool transposed) {
      move<kStore>(
          l, count, 8 * block_, k_end, transposed, [=](int tile) { return all[tile * 32]; },
          [=](int tile, const Slot& slot) { all[tile * 32] = slot; });
    };
    move_slots(0, rows(0), kGridShardedInputTiles, args_.shape.sizes[0], false);
    for (int l = 1; l < kHidden; ++l) {
      move_slots(l, rows(l), Map::kUnitTiles, width(l - 1), false);
      if (!kStore) move_slots(l, columns(l), Map::kUnitTiles, width(l), true);
    }
    for (int n = 0; n < 2 && (!kStore || block_ == 0); ++n) {
      move<kStore>(
          kHidden, Map::kUnitTiles, 8 * n, width(kHidden - 1), false,
          [=, this](int tile) { return top(n, tile); },
          [=, this](int tile, const Slot& slot) { set_top(n, tile, slot); });
    }
    const int i = threadIdx.x;
    if (i < 8 * kHidden) {
      move_bias<kStore>(i / 8, 8 * block_ + i % 8, bias(0)[i]);
    } else if (i < 8 * kHidden + kGridShardedClasses && (!kStore || block_ == 0)) {
      const int c = i - 8 * kHidden;
      move_bias<kStore>(kHidden, c, floats(Map::kTopBias)[c]);
    }
  }

  // Outputs n0 + g and inputs 16 * tile + 4t.. (exchanged if `transposed`) of layer l.
  template <bool kStore, typename Get, typename Set>
  __device__ void move(int l, int count, int n0, int k_end, bool transposed, const Get& get,
                       const Set& set) const {
    T* w = static_cast<T*>(args_.w[l]);
    float* master = args_.master_w[l];
    const int n = n0 + (lane_ >> 2), in = args_.shape.sizes[l];
    const int n_end = transposed ? in : args_.shape.sizes[l + 1];
#pragma unroll 1
    for (int tile = warp_; tile < count; tile += kGridShardedWarps) {
      Slot slot{};
      if (kStore) slot = get(tile);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = 16 * tile + 4 * (lane_ & 3) + i;
        if (n >= n_end || k >= k_end) continue;
        const int64_t at = transposed ? int64_t{k} * in + n : int64_t{n} * in + k;
        if constexpr (kStore) {
          store_weight<T, kMasters>(slot, i, w, master, at);
        } else {
          load_weight<T, kMasters>(slot, i, w, master, at);
        }
      }
      if (!kStore) set(tile, slot);
    }
  }
  template <bool kStore>
  __device__ void move_bias(int l, int n, float& own) const {
    const bool there = n < args_.shape.sizes[l + 1];
    T* half = static_cast<T*>(args_.bias[l]) + n;
    if constexpr (kStore) {
      if (!there) return;
      *half = T(own);
      if (kMasters) args_.master_bias[l][n] = own;
    } else {
      own = !there ? 0.0f : kMasters ? args_.master_bias[l][n] : float(*half);
    }
  }

  const GridShardedParams& p_;
  const MlpTrainArgs& args_;
  char* shared_;
  int block_, warp_, lane_;
};

}  // namespace ridgeline::cuda::mlp
