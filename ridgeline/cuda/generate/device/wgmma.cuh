#pragma once

// Products of a warpgroup (wgmma, sm_90a): d[64, N] += a[64, k] b[N, k] over 32 bytes of k, with b
// in shared memory in rows of 128 bytes, and a there or, in tf32, in registers.

#include "ridgeline/cuda/generate/device/numbers.cuh"

namespace ridgeline::generated {

// Descriptor of rows of 128 bytes with the 128-byte swizzle; groups of eight rows are 1024 bytes
// apart.
__device__ inline u64 wgmma_rows(u32 address) {
  return u64((address & 0x3ffff) >> 4) | u64(1) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// One instruction per number type and width. A lane has columns 8j + 2t and 8j + 2t + 1 of rows g
// and g + 8 of its warp's 16 rows in d[4j .. 4j + 3]. In registers, a lane has k = t of rows g and
// g + 8 in a[0] and a[1], and k = t + 4 in a[2] and a[3].
template <typename Math, int kColumns>
struct Wgmma;
template <int kColumns>
struct WgmmaRegisters;
// clang-format off
#define RIDGELINE_WGMMA_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
  "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define RIDGELINE_WGMMA_NAMES_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define RIDGELINE_WGMMA_OUT_16 \
  RIDGELINE_WGMMA_D8(0), \
  RIDGELINE_WGMMA_D8(8)
#define RIDGELINE_WGMMA_NAMES_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RIDGELINE_WGMMA_OUT_32 \
  RIDGELINE_WGMMA_D8(0), \
  RIDGELINE_WGMMA_D8(8), \
  RIDGELINE_WGMMA_D8(16), \
  RIDGELINE_WGMMA_D8(24)
#define RIDGELINE_WGMMA_NAMES_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RIDGELINE_WGMMA_OUT_64 \
  RIDGELINE_WGMMA_D8(0), \
  RIDGELINE_WGMMA_D8(8), \
  RIDGELINE_WGMMA_D8(16), \
  RIDGELINE_WGMMA_D8(24), \
  RIDGELINE_WGMMA_D8(32), \
  RIDGELINE_WGMMA_D8(40), \
  RIDGELINE_WGMMA_D8(48), \
  RIDGELINE_WGMMA_D8(56)
#define RIDGELINE_WGMMA_REGISTERS(N, COUNT, A0, A1, A2, A3, B)                                         \
  template <>                                                                                          \
  struct WgmmaRegisters<N> {                                                                           \
    static __device__ void add(float (&d)[COUNT], const u32* a, u64 b) {                               \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {"                         \
                   RIDGELINE_WGMMA_NAMES_##COUNT "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B   \
                   ", 1, 1, 1;"                                                                        \
                   : RIDGELINE_WGMMA_OUT_##COUNT : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
    }                                                                                                  \
  }
RIDGELINE_WGMMA_REGISTERS(32, 16, 16, 17, 18, 19, 20);
RIDGELINE_WGMMA_REGISTERS(64, 32, 32, 33, 34, 35, 36);
RIDGELINE_WGMMA_REGISTERS(128, 64, 64, 65, 66, 67, 68);
#define RIDGELINE_WGMMA(MATH, INSTRUCTION, ENDING, N, COUNT, A, B)                                     \
  template <>                                                                                          \
  struct Wgmma<MATH, N> {                                                                              \
    static __device__ void add(float (&d)[COUNT], u64 a, u64 b) {                                      \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N INSTRUCTION " {" RIDGELINE_WGMMA_NAMES_##COUNT \
                   "}, %" #A ", %" #B ", 1, 1, 1" ENDING ";"                                           \
                   : RIDGELINE_WGMMA_OUT_##COUNT : "l"(a), "l"(b));                                    \
    }                                                                                                  \
  }
#define RIDGELINE_WGMMA_WIDTHS(MATH, INSTRUCTION, ENDING)      \
  RIDGELINE_WGMMA(MATH, INSTRUCTION, ENDING, 32, 16, 16, 17);  \
  RIDGELINE_WGMMA(MATH, INSTRUCTION, ENDING, 64, 32, 32, 33);  \
  RIDGELINE_WGMMA(MATH, INSTRUCTION, ENDING, 128, 64, 64, 65)
RIDGELINE_WGMMA_WIDTHS(Bf16Math, "k16.f32.bf16.bf16", ", 0, 0");
RIDGELINE_WGMMA_WIDTHS(Fp16Math, "k16.f32.f16.f16", ", 0, 0");
RIDGELINE_WGMMA_WIDTHS(Tf32Math, "k8.f32.tf32.tf32", "");
// clang-format on
#undef RIDGELINE_WGMMA_WIDTHS
#undef RIDGELINE_WGMMA
#undef RIDGELINE_WGMMA_REGISTERS
#undef RIDGELINE_WGMMA_OUT_16
#undef RIDGELINE_WGMMA_OUT_32
#undef RIDGELINE_WGMMA_OUT_64
#undef RIDGELINE_WGMMA_NAMES_16
#undef RIDGELINE_WGMMA_NAMES_32
#undef RIDGELINE_WGMMA_NAMES_64
#undef RIDGELINE_WGMMA_D8

}  // namespace ridgeline::generated
