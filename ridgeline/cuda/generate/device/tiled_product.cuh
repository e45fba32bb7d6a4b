#pragma once

// Products of generated kernels whose operands are used by several warps of a block: they come by
// way of shared memory, copied asynchronously some chunks of k ahead.

#include "ridgeline/cuda/generate/device/product.cuh"

namespace ridgeline::generated {

__device__ inline void copy_async(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups of copies but the newest kPending.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// The place of row `row`, 16 bytes number t, in a chunk of an operand in shared memory: two rows
// share a line of 128 bytes, and the halves of every other line change places, so that the eight
// lanes which read at a time never meet in a bank.
__device__ inline int tile_slot(int row, int t) {
  const int line = row >> 1;
  return 8 * line + ((((row & 1) << 2) | t) ^ ((line & 1) << 2));
}

// A product shared out over the grid in tiles of kDown x kAcross warps. S::kSplit is 1, S::kRing a
// power of two: the chunks in shared memory.
template <typename S, int kRowUnits, int kColumnUnits, int kDown>
class Tiled {
 public:
  using Math = typename S::Math;
  using Number = typename Math::Number;
  using Sum = typename Math::Sum;
  using Value = typename Math::Value;
  static constexpr int kAcross = kWarps / kDown;
  static constexpr int kRows = 16 * S::kMt * kDown, kColumns = 16 * S::kNt * kAcross;
  static constexpr int kRowTiles = (16 * kRowUnits + kRows - 1) / kRows;
  static constexpr int kColumnTiles = (16 * kColumnUnits + kColumns - 1) / kColumns;
  static constexpr int kTiles = kRowTiles * kColumnTiles;
  static constexpr int kSlots = 4 * (kRows + kColumns);  // 16 bytes each, of a chunk
  static constexpr int kBytes = 16 * kSlots * S::kRing;
  static_assert(S::kSplit == 1 && (S::kRing & (S::kRing - 1)) == 0 && S::kRing >= 2);
  static_assert(kSlots % kThreads == 0, "threads copy equally much");

  // Tiles `first`, `first + stride`, ...; `scratch` has kBytes.
  template <typename E>
  static __device__ void run(const Number* a, const Number* b, int first, int stride, void* scratch,
                             const E& e) {
    if (first >= kTiles) return;
    Tiled product(scratch);
    product.start(a, b, first);
#pragma unroll 1
    for (int tile = first; tile < kTiles; tile += stride) {
      product.multiply_chunks();
      __syncthreads();  // all have read the last chunk
      if (tile + stride < kTiles) product.start(a, b, tile + stride);
      product.hand_over(tile, e);
    }
  }

  // f(row, column) for the units of the calling warp's tiles, of the unit's first row and column.
  template <typename F>
  static __device__ void for_units(int first, int stride, const F& f) {
    for (int tile = first; tile < kTiles; tile += stride) {
#pragma unroll 1
      for (int unit = 0; unit < S::kMt * S::kNt; ++unit) {
        const int row = first_row(tile) + 16 * (unit / S::kNt);
        const int column = first_column(tile) + 16 * (unit % S::kNt);
        if (row < 16 * kRowUnits && column < 16 * kColumnUnits) f(row, column);
      }
    }
  }

 private:
  static constexpr int kEach = kSlots / kThreads;  // copies of a thread, of a chunk
  static constexpr int kLane = 16 / int(sizeof(Number));
  struct Operands {
    uint4 a[S::kMt][2], b[S::kNt][2];
  };

  __device__ explicit Tiled(void* scratch)
      : slots_(static_cast<const uint4*>(scratch)), to_(u32(__cvta_generic_to_shared(scratch))) {}

  static __device__ int first_row(int tile) {
    return tile / kColumnTiles * kRows + warp_of() / kAcross * 16 * S::kMt;
  }
  static __device__ int first_column(int tile) {
    return tile % kColumnTiles * kColumns + warp_of() % kAcross * 16 * S::kNt;
  }

  // Sets out for a tile's chunks and copies the first kRing of them.
  __device__ void start(const Number* a, const Number* b, int tile) {
    const int thread = thread_of();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int slot = thread + i * kThreads, t = slot & 3;
      int row = slot >> 2;
      if (row < kRows) {  // the same for all threads of a warp
        row = min(tile / kColumnTiles * kRows + row, 16 * kRowUnits - 1);
        from_[i] = reinterpret_cast<const char*>(a + i64(row) * S::kLda + t * kLane);
      } else {
        row = min(tile % kColumnTiles * kColumns + row - kRows, 16 * kColumnUnits - 1);
        from_[i] = reinterpret_cast<const char*>(b + i64(row) * S::kLdb + t * kLane);
      }
    }
#pragma unroll
    for (int r = 0; r < S::kRing; ++r) {
      if (r < S::kChunks) copy(r);
      commit_copies();
    }
  }
  __device__ void copy(int chunk) const {
    const int thread = thread_of();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int slot = thread + i * kThreads;
      copy_async(to_ + 16 * ((chunk & (S::kRing - 1)) * kSlots + tile_slot(slot >> 2, slot & 3)),
                 from_[i] + chunk * 64);
    }
  }
  __device__ void load(Operands& to, int chunk) const {
    const int lane = lane_of(), g = lane >> 2, t = lane & 3;
    const uint4* from = slots_ + (chunk & (S::kRing - 1)) * kSlots;
    const int row = warp_of() / kAcross * 16 * S::kMt;
    const int column = kRows + warp_of() % kAcross * 16 * S::kNt;
#pragma unroll
    for (int m = 0; m < S::kMt; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) to.a[m][h] = from[tile_slot(row + 16 * m + 2 * g + h, t)];
    }
#pragma unroll
    for (int n = 0; n < S::kNt; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        to.b[n][h] = from[tile_slot(column + 16 * n + 4 * (g >> 1) + (g & 1) + 2 * h, t)];
      }
    }
  }
  // Chunk c from `now`, while the next one goes to `next`.
  __device__ void step(int c, const Operands& now, Operands& next) {
    if (c + 1 < S::kChunks) {
      wait_copies<S::kRing - 2>();
      __syncthreads();  // chunk c + 1 is there, and all have chunk c in registers
      if (c + S::kRing < S::kChunks) copy(c + S::kRing);
      commit_copies();
      load(next, c + 1);
    }
    multiply_units<Math, S::kRound, S::kMt, S::kNt>(d_, now.a, now.b);
  }
  __device__ void multiply_chunks() {
#pragma unroll
    for (int m = 0; m < S::kMt; ++m) {
#pragma unroll
      for (int i = 0; i < 8 * S::kNt; ++i) d_[m][i / 4][i % 4] = Sum(0);
    }
    Operands even, odd;
    wait_copies<S::kRing - 1>();
    __syncthreads();
    load(even, 0);
#pragma unroll 1
    for (int c = 0; c < S::kChunks; c += 2) {
      step(c, even, odd);
      if (c + 1 < S::kChunks) step(c + 1, odd, even);
    }
  }

  // Units one after the other, and of each what the epilogue wants fetched one ahead.
  template <typename E>
  __device__ void hand_over(int tile, const E& e) {
    const int lane = lane_of(), row = first_row(tile), column = first_column(tile);
    const int r = row + 2 * (lane >> 2), c = column + 4 * (lane & 3);
    constexpr int kUnits = S::kMt * S::kNt;
    const auto inside = [&](int unit) {
      return row + 16 * (unit / S::kNt) < E::kRowEnd &&
             column + 16 * (unit % S::kNt) < E::kColumnEnd;
    };
    const auto prepare = [&](int unit) {
      typename E::State state{};
      if (inside(unit)) state = e.prepare(r + 16 * (unit / S::kNt), c + 16 * (unit % S::kNt));
      return state;
    };
    typename E::State now = prepare(0);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      typename E::State next{};
      if (unit + 1 < kUnits) next = prepare(unit + 1);
      if (inside(unit)) {
        e.take(r + 16 * (unit / S::kNt), c + 16 * (unit % S::kNt),
               block(unit / S::kNt, unit % S::kNt), now);
      }
      now = next;
    }
  }
  __device__ Block<Value> block(int m, int n) const {
    Block<Value> out;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) out.v[r][c] = Value(d_[m][2 * n + (c >> 1)][2 * r + (c & 1)]);
    }
    return out;
  }

  const uint4* slots_;
  u32 to_;
  const char* from_[kEach];
  Sum d_[S::kMt][2 * S::kNt][4];
};

}  // namespace ridgeline::generated
