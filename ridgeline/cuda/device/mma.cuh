#pragma once

// Tensor-core products of 16-bit operands by one warp (mma.sync, sm_80 and newer), and their
// register layouts. Below, lane = 4 * g + t.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ridgeline::cuda {

// Two values of a 16-bit format in one register, the first in the low half.
template <typename T>
struct Pair;

template <>
struct Pair<__half> {
  static __device__ uint32_t pack(float lo, float hi) {
    const __half2 h = __floats2half2_rn(lo, hi);
    return *reinterpret_cast<const uint32_t*>(&h);
  }
  static __device__ float2 unpack(uint32_t pair) {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  }
  // All ones in the halves whose value is above 0.
  static __device__ uint32_t positive(uint32_t pair) {
    return __hgt2_mask(*reinterpret_cast<const __half2*>(&pair), __half2{0, 0});
  }
};

template <>
struct Pair<__nv_bfloat16> {
  static __device__ uint32_t pack(float lo, float hi) {
    const __nv_bfloat162 h = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<const uint32_t*>(&h);
  }
  static __device__ float2 unpack(uint32_t pair) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
  }
  static __device__ uint32_t positive(uint32_t pair) {
    return __hgt2_mask(*reinterpret_cast<const __nv_bfloat162*>(&pair), __nv_bfloat162{0, 0});
  }
};

// d[16, 8] += a[16, 16] . b[16, 8], fp32 accumulation.
//   a: {rows g, g + 8} x {columns 2t..2t+1} in registers 0 and 1, columns + 8 in 2 and 3
//   b: column g, rows 2t..2t+1 in register 0, rows + 8 in 1
//   d: row g, columns 2t..2t+1 in 0 and 1; row g + 8 in 2 and 3
template <typename T>
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (sizeof(T) == 2 && __is_same(T, __half)) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Transposes an 8 x 8 matrix that is spread over the warp: lane 4g + t passes row g, columns
// 2t..2t+1, and receives column g, rows 2t..2t+1. Register i of an `a` operand becomes half of a
// `b` operand.
__device__ inline uint32_t transpose_8x8(uint32_t pair) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

}  // namespace ridgeline::cuda
