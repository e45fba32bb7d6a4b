#pragma once

// The memory layout of activations and weights in the whole-step functions: the order in which the
// lanes of a warp hold them as operands of mma_m16n8k16, so that every access is one 8- or 16-byte
// access of a lane to its own slot.
//
// A *tile* of activations is 16 samples x 16 units. Lane 4g + t holds units 4t..4t+3 of samples g
// and g + 8, as {g: 4t, 4t+1}, {g + 8: 4t, 4t+1}, {g: 4t+2, 4t+3}, {g + 8: 4t+2, 4t+3}: 16 bytes.
// (The tensor core calls these columns 2t, 2t+1, 2t+8, 2t+9; a dot product does not depend on the
// order, as long as the weights use the same one.) A matrix of activations is [unit tile][sample
// tile][lane].
//
// A tile of weights is 8 outputs x 16 inputs. Lane 4g + t holds inputs 4t..4t+3 of output g.

#include <cstdint>

#include "ridgeline/cuda/device/mma.cuh"
#include "ridgeline/cuda/mlp_train/arena.h"

namespace ridgeline::cuda::mlp {

constexpr int kBlockThreads = 32 * kWarps;

// The samples of one unit tile: kSampleTiles x 16 samples x 16 units.
template <int kSampleTiles>
struct Fragment {
  uint32_t r[kSampleTiles][4];
};

// Where the activations of all blocks are read from: `load` is a 16-byte read of the lane's slot.
// `own` reads a slot that the lane wrote itself, in whichever memory it is.
struct FromShared {
  static constexpr bool kFar = false;
  static __device__ uint4 load(const uint4* p) { return *p; }
};
struct FromL2 {  // written by other blocks during this launch: bypasses L1
  static constexpr bool kFar = true;
  // Takes a generic address, because own slots may be in shared memory. A relaxed load at GPU scope
  // reads from L2 otherwise.
  static __device__ uint4 load(const uint4* p) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
  }
};

// Calls f(tile, fragment) for this warp's unit tiles warp, warp + warps, and so on below `tiles`,
// with kAhead of them in flight.
template <int kSampleTiles, typename From, int kAhead, typename F>
__device__ inline void for_each_tile(const uint4* v, int tiles, int warp, int warps, int lane,
                                     F&& f) {
#pragma unroll 1
  for (int first = warp; first < tiles; first += warps * kAhead) {
    Fragment<kSampleTiles> a[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int tile = first + i * warps;
      if (tile >= tiles) break;
#pragma unroll
      for (int s = 0; s < kSampleTiles; ++s) {
        const uint4 slot = From::load(v + (tile * kSampleTiles + s) * 32 + lane);
        a[i].r[s][0] = slot.x, a[i].r[s][1] = slot.y, a[i].r[s][2] = slot.z, a[i].r[s][3] = slot.w;
      }
    }
    // Two at a time, so that one hides the latency of the other.
#pragma unroll
    for (int i = 0; i < kAhead; i += 2) {
      constexpr int kLast = kAhead - 1;
      const int tile = first + i * warps;
      if (i < kLast && tile + warps < tiles) {
        f(tile, a[i]);
        f(tile + warps, a[i < kLast ? i + 1 : kLast]);
      } else if (tile < tiles) {
        f(tile, a[i]);
      }
    }
  }
}

// A lane's four weights of a tile, stored as T, or as float for master weights.
template <typename T, bool kMasters>
struct WeightTile {
  using Slot = uint2;
  static __device__ uint2 operand(const Slot& slot) { return slot; }
  // w = keep * w - step * g
  static __device__ void update(Slot& slot, const float (&g)[4], float keep, float step) {
    const float2 lo = Pair<T>::unpack(slot.x), hi = Pair<T>::unpack(slot.y);
    slot.x = Pair<T>::pack(fmaf(-step, g[0], keep * lo.x), fmaf(-step, g[1], keep * lo.y));
    slot.y = Pair<T>::pack(fmaf(-step, g[2], keep * hi.x), fmaf(-step, g[3], keep * hi.y));
  }
};

template <typename T>
struct WeightTile<T, true> {
  using Slot = float4;
  static __device__ uint2 operand(const Slot& slot) {
    return {Pair<T>::pack(slot.x, slot.y), Pair<T>::pack(slot.z, slot.w)};
  }
  static __device__ void update(Slot& slot, const float (&g)[4], float keep, float step) {
    slot.x = fmaf(-step, g[0], keep * slot.x), slot.y = fmaf(-step, g[1], keep * slot.y);
    slot.z = fmaf(-step, g[2], keep * slot.z), slot.w = fmaf(-step, g[3], keep * slot.w);
  }
};

// Moves one weight between a row-major matrix and a lane's slot.
template <typename T, bool kMasters>
__device__ inline void load_weight(typename WeightTile<T, kMasters>::Slot& slot, int i, const T* w,
                                   const float* master, int64_t at) {
  if constexpr (kMasters) {
    reinterpret_cast<float*>(&slot)[i] = master[at];
  } else {
    reinterpret_cast<T*>(&slot)[i] = w[at];
  }
}
template <typename T, bool kMasters>
__device__ inline void store_weight(const typename WeightTile<T, kMasters>::Slot& slot, int i, T* w,
                                    float* master, int64_t at) {
  if constexpr (kMasters) {
    const float value = reinterpret_cast<const float*>(&slot)[i];
    master[at] = value;
    w[at] = T(value);
  } else {
    w[at] = reinterpret_cast<const T*>(&slot)[i];
  }
}

}  // namespace ridgeline::cuda::mlp
