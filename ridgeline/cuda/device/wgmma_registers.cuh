#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

// Warpgroup matrix multiply with A in registers (sm_90a): D[64, N] += A[64, 16] B[16, N] for N = 16
// or 32, for an A that stays while B changes.
namespace ridgeline::cuda {

// A thread's part of A is that of mma.m16n8k16 for its warp's 16 rows. `accumulate` false
// overwrites d. The registers must not change until the instruction's group has been waited for.
#define RIDGELINE_WGMMA_REGISTERS(TYPE)                                                         \
  asm volatile(                                                                                 \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE                               \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15},"                \
      " {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n}\n"                                            \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),     \
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), \
        "+f"(d[14]), "+f"(d[15])                                                                \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)))
template <typename T>
__device__ inline void wgmma_registers(float (&d)[16], const uint32_t (&a)[4], uint64_t b,
                                       bool accumulate) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    RIDGELINE_WGMMA_REGISTERS("bf16");
  } else {
    static_assert(std::is_same_v<T, __half>);
    RIDGELINE_WGMMA_REGISTERS("f16");
  }
}
#undef RIDGELINE_WGMMA_REGISTERS

#define RIDGELINE_WGMMA_REGISTERS_16(TYPE)                                                  \
  asm volatile(                                                                             \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n16k16.f32." TYPE "." TYPE                           \
      " {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;\n}\n"        \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), \
        "+f"(d[7])                                                                          \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)))
template <typename T>
__device__ inline void wgmma_registers(float (&d)[8], const uint32_t (&a)[4], uint64_t b,
                                       bool accumulate) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    RIDGELINE_WGMMA_REGISTERS_16("bf16");
  } else {
    static_assert(std::is_same_v<T, __half>);
    RIDGELINE_WGMMA_REGISTERS_16("f16");
  }
}
#undef RIDGELINE_WGMMA_REGISTERS_16

}  // namespace ridgeline::cuda
