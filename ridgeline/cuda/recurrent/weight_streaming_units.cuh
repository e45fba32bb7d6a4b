#pragma once

#include <type_traits>

#include "ridgeline/cuda/device/wgmma.cuh"
#include "ridgeline/cuda/recurrent/values.cuh"
#include "ridgeline/cuda/recurrent/weight_streaming.h"

namespace ridgeline::cuda::recurrent {

constexpr int kMostStages = 8;

template <typename T>
struct WeightStreamingForwardParams {
  PersistentForward<T> args;
  StreamShape shape;
};

// Which unit of a block a thread (of four adjacent ones) has as its p-th: runs of four, so that
// they are loaded and stored together; the rest in ones or twos.
template <Cell kCell, int kQuads>
struct StreamUnits {
  static constexpr int kGates = cell_gates(kCell);
  static constexpr int kUnits = 4 * kQuads, kRows = kGates * kUnits;
  static constexpr int kFull = kQuads / 4 * 4, kLeft = kQuads % 4;
  static_assert(kLeft != 3);
  static __host__ __device__ constexpr int unit(int p, int t) {
    return p < kFull ? p / 4 * 16 + 4 * t + p % 4 : 4 * kFull + kLeft * t + p - kFull;
  }
  // The gate and unit of a row of the block's weights, in the order of wgmma's accumulators: a
  // thread has two columns of each group of 8, which are the gates of its units, one after the
  // other.
  static __host__ __device__ constexpr int gate_of(int row) { return column(row) % kGates; }
  static __host__ __device__ constexpr int unit_of(int row) {
    return unit(column(row) / kGates, row % 8 / 2);
  }
  // The accumulator of a gate of a thread's p-th unit, for its first sample or its second.
  static __host__ __device__ constexpr int sum(int half, int p, int gate) {
    const int column = p * kGates + gate;
    return column / 2 * 4 + 2 * half + column % 2;
  }
  // Calls f(first p, count) for each run of units.
  template <typename F>
  static __device__ void for_runs(const F& f) {
#pragma unroll
    for (int p = 0; p < kFull; p += 4) f(p, std::integral_constant<int, 4>());
    if constexpr (kLeft > 0) f(kFull, std::integral_constant<int, kLeft>());
  }

 private:
  // The index among a thread's columns.
  static __host__ __device__ constexpr int column(int row) { return row / 8 * 2 + row % 2; }
};

// The registers of a thread of a weight-streaming pass: two samples, and all gates of its units.
template <Cell kCell, int kQuads>
struct StreamOwn {
  using Units = StreamUnits<kCell, kQuads>;
  float sums[2 * Units::kGates * kQuads];
  uint32_t gates[2][kQuads][2];  // of a unit, in their stored form
  float h[2][kQuads], c[2][kQuads];
  float last_x[2][kQuads];   // the sum with x of a GRU's last gate
  int sample[2], length[2];  // index within the block; length is 0 if there is none
  __device__ float& sum(int half, int p, int gate) { return sums[Units::sum(half, p, gate)]; }
  // The accumulator that the sum with x of a gate is added to.
  __device__ float& input(int half, int p, int gate) {
    return kCell == Cell::gru && gate == 2 ? last_x[half][p] : sum(half, p, gate);
  }
};

// Neighbouring values; zeros if there are none.
template <int kCount, typename V>
__device__ inline void load_run(const V* from, float* to) {
  Values<V, kCount> v = {};
  if (from != nullptr) v = *reinterpret_cast<const Values<V, kCount>*>(from);
#pragma unroll
  for (int e = 0; e < kCount; ++e) to[e] = float(v.v[e]);
}
template <int kCount, typename T>
__device__ inline void store_run(T* to, const float* from) {
  Values<T, kCount> v;
#pragma unroll
  for (int e = 0; e < kCount; ++e) v.v[e] = T(from[e]);
  *reinterpret_cast<Values<T, kCount>*>(to) = v;
}

// D[64, N] += A[64, 16] B[16, N] for widths that the other headers do not have.
// clang-format off
#define RIDGELINE_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define RIDGELINE_D20(i) RIDGELINE_D4(i), RIDGELINE_D4(i + 4), RIDGELINE_D4(i + 8), \
  RIDGELINE_D4(i + 12), RIDGELINE_D4(i + 16)
#define RIDGELINE_REGISTERS_36                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35"
#define RIDGELINE_REGISTERS_40                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "   \
  "%36, %37, %38, %39"
#define RIDGELINE_REGISTERS_80 RIDGELINE_REGISTERS_40                                       \
  ", %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "      \
  "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "        \
  "%72, %73, %74, %75, %76, %77, %78, %79"
#define RIDGELINE_WGMMA_72(TYPE)                                                            \
  asm volatile("wgmma.mma_async.sync.aligned.m64n72k16.f32." TYPE "." TYPE                  \
               " {" RIDGELINE_REGISTERS_36 "}, %36, %37, 1, 1, 1, 0, 0;"                    \
               : RIDGELINE_D20(0), RIDGELINE_D4(20), RIDGELINE_D4(24), RIDGELINE_D4(28),    \
                 RIDGELINE_D4(32) : "l"(a), "l"(b))
#define RIDGELINE_WGMMA_80(TYPE)                                                            \
  asm volatile("wgmma.mma_async.sync.aligned.m64n80k16.f32." TYPE "." TYPE                  \
               " {" RIDGELINE_REGISTERS_40 "}, %40, %41, 1, 1, 1, 0, 0;"                    \
               : RIDGELINE_D20(0), RIDGELINE_D20(20) : "l"(a), "l"(b))
#define RIDGELINE_WGMMA_160(TYPE)                                                           \
  asm volatile("wgmma.mma_async.sync.aligned.m64n160k16.f32." TYPE "." TYPE                 \
               " {" RIDGELINE_REGISTERS_80 "}, %80, %81, 1, 1, 1, 0, 0;"                    \
               : RIDGELINE_D20(0), RIDGELINE_D20(20), RIDGELINE_D20(40), RIDGELINE_D20(60)  \
               : "l"(a), "l"(b))
template <typename T, int kCount>
__device__ inline void stream_wgmma(float (&d)[kCount], uint64_t a, uint64_t b) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  if constexpr (kCount == 36 && kHalf) {
    RIDGELINE_WGMMA_72("f16");
  } else if constexpr (kCount == 36) {
    RIDGELINE_WGMMA_72("bf16");
  } else if constexpr (kCount == 40 && kHalf) {
    RIDGELINE_WGMMA_80("f16");
  } else if constexpr (kCount == 40) {
    RIDGELINE_WGMMA_80("bf16");
  } else if constexpr (kCount == 80 && kHalf) {
    RIDGELINE_WGMMA_160("f16");
  } else if constexpr (kCount == 80) {
    RIDGELINE_WGMMA_160("bf16");
  } else {
    wgmma<T, false, false>(d, a, b, true);
  }
}
#undef RIDGELINE_WGMMA_160
#undef RIDGELINE_WGMMA_80
#undef RIDGELINE_WGMMA_72
#undef RIDGELINE_REGISTERS_36
#undef RIDGELINE_REGISTERS_80
#undef RIDGELINE_REGISTERS_40
#undef RIDGELINE_D20
#undef RIDGELINE_D4
// clang-format on

// A position in the ring of stages.
struct Stage {
  int index = 0;
  uint32_t phase = 0;
  __device__ void advance(int stages) {
    if (++index < stages) return;
    index = 0;
    phase ^= 1;
  }
};

}  // namespace ridgeline::cuda::recurrent
