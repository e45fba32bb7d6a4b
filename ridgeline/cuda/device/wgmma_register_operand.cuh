#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

// Warpgroup matrix multiply with A in registers (sm_90a): D[64, N] += A[64, 16] B[16, N] for N =
// 16, 32, 64 or 128, with B contiguous along k or n. wgmma_registers.cuh has the narrow ones along
// k.
namespace ridgeline::cuda {

// A thread's part of A is that of mma.m16n8k16 for its warp's 16 rows. `accumulate` false
// overwrites d. The registers must not change until the instruction's group has been waited for.
// kTransposed: B is contiguous along n.
// clang-format off
#define RIDGELINE_REGISTERS_8 \
  "%0, %1, %2, %3, %4, %5, %6, %7"
#define RIDGELINE_REGISTERS_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define RIDGELINE_REGISTERS_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RIDGELINE_REGISTERS_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RIDGELINE_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
  "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define RIDGELINE_D16(i) RIDGELINE_D8(i), RIDGELINE_D8(i + 8)
#define RIDGELINE_D32(i) RIDGELINE_D16(i), RIDGELINE_D16(i + 16)
#define RIDGELINE_D64(i) RIDGELINE_D32(i), RIDGELINE_D32(i + 32)
// P0..P6: the operand numbers after the accumulators.
#define RIDGELINE_WGMMA(TYPE, N, COUNT, P0, P1, P2, P3, P4, P5, P6)                       \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P5 ", 0;\n"                          \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE           \
               " {" RIDGELINE_REGISTERS_##COUNT "}, {%" P0 ", %" P1 ", %" P2 ", %" P3    \
               "}, %" P4 ", p, 1, 1, %" P6 ";\n}\n"                                      \
               : RIDGELINE_D##COUNT(0)                                                   \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)), \
                 "n"(int(kTransposed)))
#define RIDGELINE_WGMMA_WIDTH(N, COUNT, ...)                                              \
  template <typename T, bool kTransposed = false>                                         \
  __device__ inline void wgmma_register_operand(float (&d)[COUNT], const uint32_t (&a)[4],       \
                                         uint64_t b, bool accumulate) {                   \
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {                                     \
      RIDGELINE_WGMMA("bf16", N, COUNT, __VA_ARGS__);                                     \
    } else {                                                                              \
      static_assert(std::is_same_v<T, __half>);                                           \
      RIDGELINE_WGMMA("f16", N, COUNT, __VA_ARGS__);                                      \
    }                                                                                     \
  }
RIDGELINE_WGMMA_WIDTH(16, 8, "8", "9", "10", "11", "12", "13", "14")
RIDGELINE_WGMMA_WIDTH(32, 16, "16", "17", "18", "19", "20", "21", "22")
RIDGELINE_WGMMA_WIDTH(64, 32, "32", "33", "34", "35", "36", "37", "38")
RIDGELINE_WGMMA_WIDTH(128, 64, "64", "65", "66", "67", "68", "69", "70")
#undef RIDGELINE_WGMMA_WIDTH
#undef RIDGELINE_WGMMA
#undef RIDGELINE_REGISTERS_8
#undef RIDGELINE_D8
#undef RIDGELINE_REGISTERS_16
#undef RIDGELINE_D16
#undef RIDGELINE_REGISTERS_32
#undef RIDGELINE_D32
#undef RIDGELINE_REGISTERS_64
#undef RIDGELINE_D64
// clang-format on

// Keeps the operands in their registers up to here, after the wait for the products that read them.
template <int kCount>
__device__ inline void wgmma_keep_operands(uint32_t (&a)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
  }
}

}  // namespace ridgeline::cuda
