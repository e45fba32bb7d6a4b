#pragma once

// Products of generated functions that are large enough for wgmma: operands are copied
// asynchronously to shared memory a few slabs of k ahead, and the tensor cores read them there.

#include "ridgeline/cuda/generate/device/product.cuh"
#include "ridgeline/cuda/generate/device/wgmma.cuh"

namespace ridgeline::generated {

// Copies 16 bytes, of which those past `bytes` become zeros.
__device__ inline void copy_async(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups of copies but the newest kPending.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// Makes what this thread has written to shared memory visible to the tensor cores.
__device__ inline void show_to_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline float load_shared(u32 at) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
  return v;
}
__device__ inline float4 load_shared_four(u32 at) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(at)
               : "memory");
  return v;
}
__device__ inline void store_shared_four(u32 at, const float4& v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w)
               : "memory");
}

// Whether products of fp32 numbers are made from tf32 numbers: a number is the sum of two, and of
// the four products the one of the small parts is left out. The factors of a product are then off
// by 3 * 2^-22, which is less than the rounding of sums of 64 terms and more.
template <typename Math>
constexpr bool kSplitsNumbers = false;
template <>
constexpr bool kSplitsNumbers<Fp32Math> = true;

// Splits a product over the grid into tiles of kDown x 2 / kDown warpgroups, each with 64 x 16 *
// S::kNt results, and each tile into kParts parts of k. A slab is 128 bytes of k (two chunks);
// S::kRing of them are in shared memory. Rows are in the order that gives each lane the results of
// a unit that Block holds.
template <typename S, int kRowUnits, int kColumnUnits, int kDown, int kParts = 1>
class Tiled {
 public:
  using Math = typename S::Math;
  using Number = typename Math::Number;
  using Value = typename Math::Value;
  static constexpr int kAcross = 2 / kDown, kWidth = 16 * S::kNt;
  static constexpr int kRows = 64 * kDown, kColumns = kWidth * kAcross;
  static constexpr int kRowTiles = (16 * kRowUnits + kRows - 1) / kRows;
  static constexpr int kColumnTiles = (16 * kColumnUnits + kColumns - 1) / kColumns;
  static constexpr int kTiles = kRowTiles * kColumnTiles * kParts;
  static constexpr int kSlabs = (S::kChunks + 1) / 2;  // of all parts
  static constexpr int kPartSlabs = (kSlabs + kParts - 1) / kParts;
  static constexpr int kCopied = S::kShared ? 0 : kRows;  // rows of a that are copied
  static constexpr int kSlabBytes = 128 * (kCopied + kColumns);
  static_assert(kThreads == 256 && S::kSplit == 1 && S::kMt == 1 && S::kRing >= 4);
  // In fp32 a and b are split, in tf32 gradients a is rounded. a then goes through registers, and
  // the small parts of b lie behind the slabs, for two slabs.
  static constexpr bool kSplits = kSplitsNumbers<Math>, kFromRegisters = kSplits || S::kRound;
  static constexpr int kSmallBytes = 128 * kColumns;

  // Computes tiles `first`, `first + stride`, and so on; `scratch` has kRing slabs or as many as
  // there are, two of small parts if numbers are split, and 1 KiB to align them.
  template <typename E>
  static __device__ void run(const Number* a, const Number* b, int first, int stride, void* scratch,
                             E e) {
    Turns turns(first, stride);
    run(a, b, turns, scratch, e);
  }
  template <typename Order, typename E>
  static __device__ void run(const Number* a, const Number* b, Order& order, void* scratch, E e) {
    if (order.tile() >= kTiles) return order.pass(kTiles);
    Tiled product((u32(__cvta_generic_to_shared(scratch)) + 1023) & ~1023u);
    product.start(a, b, order.tile());
#pragma unroll 1
    for (int task = order.tile(); task < kTiles; task = order.tile()) {
      const int tile = task / kParts, drawn = order.draw();
      if constexpr (kParts > 1) e.part = task % kParts;
      // The epilogue's state for the first units is fetched while they are multiplied.
      typename E::State states[kAhead<E>];
#pragma unroll
      for (int unit = 0; unit < kAhead<E>; ++unit) states[unit] = prepare(tile, unit, e);
      product.multiply();
      order.put(drawn);
      __syncthreads();  // both warpgroups are done with the slabs
      order.next();
      if (order.tile() < kTiles) product.start(a, b, order.tile());
      product.hand_over(tile, e, states);
    }
    order.pass(kTiles);
  }

 protected:
  static constexpr int kEach = (kCopied + kColumns) / 32;  // copies per thread and slab
  template <typename E>
  static constexpr int kAhead = E::kAhead < S::kNt ? E::kAhead : S::kNt;

  __device__ explicit Tiled(u32 slabs) : slabs_(slabs) {}

  static __device__ int group() { return thread_of() >> 7; }
  static __device__ int first_row(int tile) {
    return tile / kColumnTiles * kRows + group() / kAcross * 64 + (warp_of() & 3) * 16;
  }
  static __device__ int first_column(int tile) {
    return tile % kColumnTiles * kColumns + group() % kAcross * kWidth;
  }

  // Begins a tile and copies its first slabs. A thread copies 16-byte unit thread % 8 of rows
  // thread / 8, thread / 8 + 32, and so on.
  __device__ void start(const Number* a, const Number* b, int task) {
    const int tile = task / kParts;
    first_ = task % kParts * kPartSlabs;
    count_ = min(kPartSlabs, kSlabs - first_);
    const int thread = thread_of(), low = (thread >> 3) & 15;
    const int a_row = low < 8 ? 2 * low : 2 * low - 15;
    const int b_row = 4 * ((low >> 1) & 3) + 2 * (low >> 3) + (low & 1);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int high = ((thread >> 3) & 16) + 32 * i;
      const bool of_a = 32 * i < kCopied;
      const int row = of_a ? min(tile / kColumnTiles * kRows + high + a_row, 16 * kRowUnits - 1)
                           : min(tile % kColumnTiles * kColumns + high - kCopied + b_row,
                                 16 * kColumnUnits - 1);
      const Number* at = of_a ? a + i64(row) * S::kLda : b + i64(row) * S::kLdb;
      from_[i] = reinterpret_cast<const char*>(at) + 16 * (thread & 7);
    }
#pragma unroll
    for (int slab = 0; slab < S::kRing - 2; ++slab) {
      if (slab < count_) copy(slab);
      commit_copies();
    }
  }
  __device__ void copy(int slab) const {
    const int thread = thread_of(), row = thread >> 3;
    // The second half of the last slab may be past the end.
    const bool real = S::kChunks % 2 == 0 || first_ + slab + 1 < kSlabs || (thread & 4) == 0;
    const u32 to =
        slabs_ + slab % S::kRing * kSlabBytes + 128 * row + 16 * ((thread & 7) ^ (row & 7));
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      copy_async(to + 4096 * i, real ? from_[i] + (first_ + slab) * 128 : from_[i], real ? 16 : 0);
  }
  // `shared_a` has the slabs of a if S::kShared.
  __device__ void multiply(const Number* shared_a = nullptr) {
#pragma unroll
    for (int i = 0; i < 8 * S::kNt; ++i) d_[i] = 0.0f;
    const u32 a = (S::kShared ? u32(__cvta_generic_to_shared(shared_a)) : slabs_) +
                  128 * 64 * (group() / kAcross);
    const u32 b = slabs_ + 128 * (kCopied + kWidth * (group() % kAcross));
    if constexpr (kFromRegisters) {
      multiply_registers(a, b);
    } else {
#pragma unroll 1
      for (int slab = 0; slab < count_; ++slab) {
        wait_copies<S::kRing - 3>();
        show_to_wgmma();
        // The slab has arrived, and both warpgroups are done with the last but one.
        __syncthreads();
        if (slab + S::kRing - 2 < count_) copy(slab + S::kRing - 2);
        commit_copies();
        const u32 at = slab % S::kRing * kSlabBytes;
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 128; k += 32)
          Wgmma<Math, kWidth>::add(d_, wgmma_rows(a + (S::kShared ? 128 * kRows * slab : at) + k),
                                   wgmma_rows(b + at + k));
        wgmma_commit();
        wgmma_wait<1>();
      }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 8 * S::kNt; ++i) asm volatile("" : "+f"(d_[i])::"memory");
  }
  // Splits the rows of b that this thread has copied.
  __device__ void split_b(int slab) const {
    const int thread = thread_of(), row = thread >> 3;
    const u32 own = 128 * row + 16 * ((thread & 7) ^ (row & 7));
    const u32 large = slabs_ + slab % S::kRing * kSlabBytes + 128 * kCopied + own;
    const u32 small = slabs_ + S::kRing * kSlabBytes + slab % 2 * kSmallBytes + own;
#pragma unroll
    for (int i = 0; i < kColumns / 32; ++i) {
      const float4 v = load_shared_four(large + 4096 * i);
      const float4 most = {round_tf32(v.x), round_tf32(v.y), round_tf32(v.z), round_tf32(v.w)};
      store_shared_four(large + 4096 * i, most);
      store_shared_four(small + 4096 * i, {round_tf32(v.x - most.x), round_tf32(v.y - most.y),
                                           round_tf32(v.z - most.z), round_tf32(v.w - most.w)});
    }
  }
  // Multiplies with the warp's rows of a rounded or split on their way to registers. While the
  // tensor cores multiply a slab, the rows of b of the next one are split.
  __device__ void multiply_registers(u32 a, u32 b) {
    const int lane = lane_of(), g = lane >> 2, t = lane & 3;
    const u32 row = a + 128 * (16 * (warp_of() & 3) + g) + 4 * t;
    const auto receive = [&](int slab) {
      wait_copies<S::kRing - 3>();
      if constexpr (kSplits) split_b(slab);
      show_to_wgmma();
    };
    receive(0);
    __syncthreads();
#pragma unroll 1
    for (int slab = 0; slab < count_; ++slab) {
      const u32 at = slab % S::kRing * kSlabBytes;
      const u32 small = slabs_ + S::kRing * kSlabBytes + slab % 2 * kSmallBytes +
                        128 * kWidth * (group() % kAcross);
      u32 large_a[4][4], small_a[kSplits ? 4 : 1][4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float v = load_shared(row + at + 1024 * (i & 1) + 16 * ((2 * k + (i >> 1)) ^ g));
          const float most = round_tf32(v);
          large_a[k][i] = __float_as_uint(most);
          if constexpr (kSplits) small_a[k][i] = __float_as_uint(round_tf32(v - most));
        }
      }
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if constexpr (kSplits) {
          WgmmaRegisters<kWidth>::add(d_, small_a[k], wgmma_rows(b + at + 32 * k));
          WgmmaRegisters<kWidth>::add(d_, large_a[k], wgmma_rows(small + 32 * k));
        }
        WgmmaRegisters<kWidth>::add(d_, large_a[k], wgmma_rows(b + at + 32 * k));
      }
      wgmma_commit();
      if (slab + S::kRing - 2 < count_) copy(slab + S::kRing - 2);
      commit_copies();
      if (slab + 1 < count_) receive(slab + 1);
      wgmma_wait<0>();
      __syncthreads();  // the next slab has arrived, and both warpgroups are done with this one
    }
  }

  template <typename E>
  static __device__ typename E::State prepare(int tile, int unit, const E& e) {
    const int lane = lane_of(), row = first_row(tile), column = first_column(tile) + 16 * unit;
    typename E::State state{};
    if (row < E::kRowEnd && column < E::kColumnEnd)
      state = e.prepare(row + 2 * (lane >> 2), column + 4 * (lane & 3));
    return state;
  }
  // Passes on one unit after the other; the epilogue's state is fetched kAhead units ahead.
  template <typename E>
  __device__ void hand_over(int tile, const E& e, typename E::State (&states)[kAhead<E>]) {
    const int lane = lane_of(), row = first_row(tile), column = first_column(tile);
    const int r = row + 2 * (lane >> 2), c = column + 4 * (lane & 3);
    if (row >= E::kRowEnd) return;
#pragma unroll
    for (int unit = 0; unit < S::kNt; ++unit) {
      if (column + 16 * unit < E::kColumnEnd) {
        Block<Value> block;
#pragma unroll
        for (int i = 0; i < 8; ++i)  // d_[8 unit + 4 h + 2 r + c]: row r, column 2 h + c
          block.v[(i >> 1) & 1][2 * (i >> 2) + (i & 1)] = d_[8 * unit + i];
        e.take(r, c + 16 * unit, block, states[unit % kAhead<E>]);
      }
      if (unit + kAhead<E> < S::kNt) states[unit % kAhead<E>] = prepare(tile, unit + kAhead<E>, e);
    }
  }

  u32 slabs_;
  int first_ = 0, count_ = 0;  // slabs of the part
  const char* from_[kEach];
  float d_[8 * S::kNt];
};

// One block computes all columns of one strip of 64 rows, like Strip, by two warpgroups. Operands
// of the next product are copied while results are stored.
template <typename S, int kRowUnits, int kColumnUnits, typename E>
class WideStrip : Tiled<S, kRowUnits, kColumnUnits, 1> {
  using Base = Tiled<S, kRowUnits, kColumnUnits, 1>;

 public:
  using Number = typename Base::Number;
  static_assert(Base::kColumnTiles == 1);

  __device__ explicit WideStrip(void* scratch)
      : Base((u32(__cvta_generic_to_shared(scratch)) + 1023) & ~1023u) {}
  // Called after a block barrier that follows the last use of `scratch`. `a` is the whole matrix in
  // memory, and not used if S::kShared.
  __device__ void prefetch(const Number* a, const Number* b, int strip) {
    Base::start(a, b, strip);
  }
  // `a` has the strip's slabs in shared memory if S::kShared, and is not used otherwise.
  __device__ void multiply(const Number* a, int strip, const E& e) {
#pragma unroll
    for (int unit = 0; unit < kAhead; ++unit) states_[unit] = Base::prepare(strip, unit, e);
    Base::multiply(a);
    __syncthreads();  // the slabs are free for the next product
  }
  __device__ void finish(int strip, const E& e) { Base::hand_over(strip, e, states_); }

 private:
  static constexpr int kAhead = Base::template kAhead<E>;
  typename E::State states_[kAhead];
};

}  // namespace ridgeline::generated
