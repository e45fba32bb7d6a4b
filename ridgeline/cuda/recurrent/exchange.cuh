#pragma once

// What the blocks of a persistent pass hand each other, and the product that takes it.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ridgeline/cuda/device/mma.cuh"

namespace ridgeline::cuda::recurrent {

constexpr int kWarps = 8, kThreads = 32 * kWarps;

__device__ inline void wait_cycles(int cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

// Two NaNs of a bit pattern that conversions never give: "not here yet".
constexpr uint32_t kAbsent = 0xffffffffu;

// A step's slot: [pieces of 32 places][tiles of 8 items][lane 4 g + t], 16 bytes each: the places
// 8 t.. of item g, so that a lane's load is a `b` operand of two products (with the weights' places
// in the same order).
__device__ inline int slot_index(int octet, int item, int item_tiles) {
  return ((octet >> 2) * item_tiles + (item >> 3)) * 32 + (item & 7) * 4 + (octet & 3);
}

__device__ inline uint4 load_handed(const uint4* from) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ inline void hand_over(uint4* slot, int index, int word, uint32_t value) {
  asm volatile(
      "st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(reinterpret_cast<uint32_t*>(slot + index) + word),
      "r"(value)
      : "memory");
}
__device__ inline bool absent(const uint4& v) {
  return v.x == kAbsent || v.y == kAbsent || v.z == kAbsent || v.w == kAbsent;
}

// The part of the inner extent that a lane's warp has, and the items there are.
struct LaneShare {
  int first_piece;  // of 32 places
  uint32_t pieces;  // bit p: piece first_piece + p has places for this lane
  int items, item_tiles;

  __device__ LaneShare(int first, int last, int octets, int items, int item_tiles)
      : first_piece(first), pieces(0), items(items), item_tiles(item_tiles) {
    for (int p = 0; p < 32; ++p) {
      const bool there = first + p < last && 4 * (first + p) + int(threadIdx.x & 3) < octets;
      pieces |= uint32_t(there) << p;
    }
  }
};

// What a lane reads of a slot for one tile of 8 items.
template <int kPieces>
struct HandedTile {
  uint4 b[kPieces];

  __device__ static const uint4* place(const uint4* slot, const LaneShare& share, int tile, int p) {
    return slot + ((share.first_piece + p) * share.item_tiles + tile) * 32 + (threadIdx.x & 31);
  }

  // Starts the loads.
  __device__ void load(const uint4* slot, const LaneShare& share, int tile) {
    const bool has_item = 8 * tile + int((threadIdx.x & 31) >> 2) < share.items;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      b[p] = uint4{0, 0, 0, 0};
      if (has_item && (share.pieces >> p & 1)) b[p] = load_handed(place(slot, share, tile, p));
    }
  }

  __device__ bool waiting() const {
    bool any = false;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) any |= absent(b[p]);
    return any;
  }
  // Asks once more for what had not come.
  __device__ void ask_again(const uint4* slot, const LaneShare& share, int tile) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (absent(b[p])) b[p] = load_handed(place(slot, share, tile, p));
    }
  }
};

// at[item][row] = weights . b. Several sums side by side, for a chain of products waits for itself.
template <typename T, int kPieces, int kTiles, int kPitch>
__device__ inline void multiply_tile(const uint32_t (&a)[kPieces][2][kTiles][4],
                                     const HandedTile<kPieces>& handed, float* at) {
  constexpr int kChains = kTiles >= 3 ? 1 : 4 / kTiles;
  float d[kChains][kTiles][4] = {};
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t b0 = half == 0 ? handed.b[p].x : handed.b[p].z;
      const uint32_t b1 = half == 0 ? handed.b[p].y : handed.b[p].w;
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        mma_m16n8k16<T>(d[(2 * p + half) % kChains][m], a[p][half][m], b0, b1);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    float sum[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sum[e] = d[0][m][e];
#pragma unroll
      for (int c = 1; c < kChains; ++c) sum[e] += d[c][m][e];
    }
    at[16 * m] = sum[0];
    at[16 * m + kPitch] = sum[1];
    at[16 * m + 8] = sum[2];
    at[16 * m + 8 + kPitch] = sum[3];
  }
}

// partial[item][row] of this warp = weights . slot, row by row of kTiles tiles of 16, two tiles of
// items at a time: their loads are under way while others are multiplied. `partial` has a pitch of
// kPitch floats an item.
template <typename T, int kPieces, int kTiles, int kPitch>
class SlotProduct {
 public:
  using Weights = uint32_t[kPieces][2][kTiles][4];

  // Starts the first loads.
  __device__ void begin(const uint4* slot, const LaneShare& share) {
    even_.load(slot, share, 0);
    if (share.item_tiles > 1) odd_.load(slot, share, 1);
  }

  // Waits for what has not come.
  __device__ void finish(const Weights& a, const uint4* slot, const LaneShare& share,
                         float* partial) {
    const int lane = threadIdx.x & 31;
    float* at = partial + 2 * (lane & 3) * kPitch + (lane >> 2);
    for (int tile = 0; tile < share.item_tiles; tile += 2) {
      const bool two = tile + 1 < share.item_tiles;
      while (__any_sync(~0u, even_.waiting() || (two && odd_.waiting()))) {
        even_.ask_again(slot, share, tile);
        if (two) odd_.ask_again(slot, share, tile + 1);
      }
      multiply_tile<T, kPieces, kTiles, kPitch>(a, even_, at + 8 * tile * kPitch);
      if (tile + 2 < share.item_tiles) even_.load(slot, share, tile + 2);
      if (two) multiply_tile<T, kPieces, kTiles, kPitch>(a, odd_, at + 8 * (tile + 1) * kPitch);
      if (tile + 3 < share.item_tiles) odd_.load(slot, share, tile + 3);
    }
  }

 private:
  HandedTile<kPieces> even_, odd_;
};

// The sums of the gates and states are of halves in the end: fast forms, off by about 2^-24 of 1
// (not of the result: tanh of 1e-6 is good to 3 %).
struct FastMath {
  static __device__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
  static __device__ float tanh(float x) {
    const float away = __expf(-2.0f * fabsf(x));
    return copysignf(__fdividef(1.0f - away, 1.0f + away), x);
  }
};

}  // namespace ridgeline::cuda::recurrent
