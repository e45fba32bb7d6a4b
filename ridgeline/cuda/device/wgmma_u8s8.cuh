#pragma once

#include <cstdint>

#include "ridgeline/cuda/device/wgmma.cuh"

// wgmma of bytes (sm_90a): D[64, N] += A[64, 32] B[32, N], with A unsigned and B signed, both
// k-major in shared memory. D is in 32-bit integers and exact unless it overflows.
namespace ridgeline::cuda {

template <int kCount>
__device__ inline void wgmma_keep(int (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

// clang-format off
#define RIDGELINE_REGISTERS_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
  "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RIDGELINE_REGISTERS_112 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
  "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, " \
  "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, " \
  "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, " \
  "%103, %104, %105, %106, %107, %108, %109, %110, %111"
#define RIDGELINE_D8(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), \
  "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), "+r"(d[i + 7])
#define RIDGELINE_D16(i) RIDGELINE_D8(i), RIDGELINE_D8(i + 8)
#define RIDGELINE_D64(i) \
  RIDGELINE_D16(i), RIDGELINE_D16(i + 16), RIDGELINE_D16(i + 32), RIDGELINE_D16(i + 48)
#define RIDGELINE_D112(i) \
  RIDGELINE_D64(i), RIDGELINE_D16(i + 64), RIDGELINE_D16(i + 80), RIDGELINE_D16(i + 96)
// P0..P2: the operand numbers after the accumulators.
#define RIDGELINE_WGMMA_U8S8(N, COUNT, P0, P1, P2)                                                \
  __device__ inline void wgmma_u8s8(int (&d)[COUNT], uint64_t a, uint64_t b, bool accumulate) {   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P2 ", 0;\n"                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.u8.s8"                            \
                 " {" RIDGELINE_REGISTERS_##COUNT "}, %" P0 ", %" P1 ", p;\n}\n"                   \
                 : RIDGELINE_D##COUNT(0)                                                           \
                 : "l"(a), "l"(b), "r"(int(accumulate)));                                          \
  }
RIDGELINE_WGMMA_U8S8(128, 64, "64", "65", "66")
RIDGELINE_WGMMA_U8S8(224, 112, "112", "113", "114")

#undef RIDGELINE_WGMMA_U8S8
#undef RIDGELINE_D112
#undef RIDGELINE_D64
#undef RIDGELINE_D16
#undef RIDGELINE_D8
#undef RIDGELINE_REGISTERS_112
#undef RIDGELINE_REGISTERS_64
// clang-format on

}  // namespace ridgeline::cuda
