#pragma once

// The states that the blocks of a persistent pass exchange.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ridgeline/cuda/device/mbarrier.cuh"
#include "ridgeline/cuda/device/mma.cuh"
#include "ridgeline/cuda/recurrent/cell.cuh"
#include "ridgeline/cuda/recurrent/persistent.h"

namespace ridgeline::cuda::recurrent {

// Eight warps of a block multiply; a warpgroup of four more applies the gates, and needs fewer
// registers than the warps that hold the weights. 384 threads start with 168 registers each.
constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kBlockThreads = kThreads + kGateThreads;

// A panel is the samples that one product takes: two tiles of 8, or one of 32 with wgmma.
constexpr int kPanelSamples = 16, kWgmmaPanelSamples = 32;

// Fast approximations for states that are finally rounded to half types. Their error is about 2^-24
// absolute, not relative: tanh of 1e-6 is accurate to 3 %.
struct FastMath {
  static __device__ float sigmoid(float x) { return reciprocal(1.0f + power_of_2(-kLog2E * x)); }
  static __device__ float tanh(float x) {
    const float away = power_of_2(-2.0f * kLog2E * fabsf(x));
    return copysignf((1.0f - away) * reciprocal(1.0f + away), x);
  }

 private:
  static constexpr float kLog2E = 1.442695041f;
  // Results below 2^-126 may be flushed to zero here: they are added to 1.
  static __device__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static __device__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
};

// How values of a type are multiplied by tensor cores: directly, or as several planes of bf16.
template <typename T>
struct Handed {
  using Operand = T;
  using Math = FastMath;
  static constexpr int kPlanes = 1;
  static __device__ void take_apart(float v, float (&planes)[1]) { planes[0] = v; }
  // Returns both values rounded to T.
  static __device__ float2 rounded(float2 v) { return Pair<T>::unpack(Pair<T>::pack(v.x, v.y)); }
};
// An fp32 value is the sum of three bf16 values; this is exact for values above 2^-110. Infinities
// and NaNs are put into the last plane only: it is multiplied only by the first plane of the other
// factor, which has that factor's sign, so that infinite products of two signs do not meet in one
// sum.
template <>
struct Handed<float> {
  using Operand = __nv_bfloat16;
  using Math = ExactMath;
  static constexpr int kPlanes = 3;
  static __device__ void take_apart(float v, float (&planes)[3]) {
    float rest = isfinite(v) ? v : 0.0f;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      planes[i] = float(__nv_bfloat16(rest));
      rest -= planes[i];
    }
    if (!isfinite(v)) planes[2] = v;
  }
  static __device__ float2 rounded(float2 v) { return v; }
};

// Two NaNs with a bit pattern that conversions never produce. It marks words that are not written
// yet.
constexpr uint32_t kAbsent = 0xffffffffu;

// A timestep's slot of a panel: [chunks of 32 places][planes][2 tiles of 8 samples][pair of
// samples][vec8 of the chunk][sample of the pair], 16 bytes each: 8 places of a sample. Lane 4 g +
// t of a warp reads vec8 t of sample g, a `b` operand of two products (with the weights' places in
// the same order). A quarter of the warp reads 128 contiguous bytes, and what a block sends, 8
// units of two samples, fills a sector of 32.
template <int kPlanes>
__device__ inline int slot_index(int vec8, int plane, int sample) {
  return (((vec8 >> 2) * kPlanes + plane) * 2 + (sample >> 3)) * 32 + (sample >> 1 & 3) * 8 +
         (vec8 & 3) * 2 + (sample & 1);
}

__device__ inline uint4 load_handed(const uint4* from) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ inline bool absent(const uint4& v) {
  return v.x == kAbsent || v.y == kAbsent || v.z == kAbsent || v.w == kAbsent;
}

// The offset in a slot, in words of 4 bytes, of a pair of places of a sample, the first of them
// even: `begin` once per place, then `offset` for each sample.
template <int kPlanes>
struct LaneSlot {
  static __device__ int begin(int place) {
    return 4 * slot_index<kPlanes>(place / 8, 0, 0) + place % 8 / 2;
  }
  static __device__ int offset(int begun, int /*place*/, int sample) {
    return begun + 4 * slot_index<1>(0, 0, sample);
  }
};
// Like LaneSlot, for a panel in the layout that wgmma reads: [64 places][sample][vec8]. The vec8s
// of a sample are swizzled by its index, so that the same vec8 of eight samples is in different
// banks of shared memory.
template <int kSamples>
struct SwappedSlot {
  static __device__ int begin(int place) { return 4 * (place / 64 * 8 * kSamples) + place % 8 / 2; }
  static __device__ int offset(int begun, int place, int sample) {
    return begun + 4 * (8 * sample + ((place / 8 ^ sample) & 7));
  }
};
// The sample and vec8 of a 16-byte word of such a slot.
struct SwappedWord {
  int sample, vec8;
  __device__ SwappedWord(int word, int samples)
      : sample(word / 8 % samples), vec8(word / (8 * samples) * 8 + ((word ^ sample) & 7)) {}
};

// Stores the values of a pair of places for the other blocks.
template <typename T>
__device__ inline void hand_over(uint4* slot, int offset, float2 v) {
  using H = Handed<T>;
  float first[H::kPlanes], second[H::kPlanes];
  H::take_apart(v.x, first);
  H::take_apart(v.y, second);
#pragma unroll
  for (int plane = 0; plane < H::kPlanes; ++plane) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(reinterpret_cast<uint32_t*>(slot) +
                                                             offset + 4 * 64 * plane),
                 "r"(Pair<typename H::Operand>::pack(first[plane], second[plane]))
                 : "memory");
  }
}

__device__ inline void wait_cycles(int cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

}  // namespace ridgeline::cuda::recurrent
