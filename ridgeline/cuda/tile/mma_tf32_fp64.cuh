#pragma once

// Tensor-core products in tf32 and fp64 by one warp (mma.sync, sm_80 and newer), all as
// d[16, 8] += a[16, 8] . b[8, 8]. With lane = 4 * g + t:
//   a: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)     b: (t, g), (t + 4, g)
//   d: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
#include <cstdint>

namespace ridgeline::cuda::tile {

#if __CUDA_ARCH__ >= 800
// The nearest tf32 number, ties away from zero, as the bits of a float.
__device__ inline uint32_t to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

__device__ inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void mma_fp64(double (&d)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
  // sm_80 has only m8n8k4: both halves of the rows, both halves of k.
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+d"(d[i % 2 * 2]), "+d"(d[i % 2 * 2 + 1])
        : "d"(a[i]), "d"(b[i / 2]));
  }
#endif
}
#else
__device__ inline uint32_t to_tf32(float) { return 0; }
__device__ inline void mma_tf32(float (&)[4], const uint32_t (&)[4], const uint32_t (&)[2]) {}
__device__ inline void mma_fp64(double (&)[4], const double (&)[4], const double (&)[2]) {}
#endif

}  // namespace ridgeline::cuda::tile
