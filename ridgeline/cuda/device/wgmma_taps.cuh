#pragma once

#include <type_traits>

#include "ridgeline/cuda/device/wgmma.cuh"

// wgmma of halves D[64, 32 * taps] += A[64, 16] B[16, 32 * taps] for the odd numbers of taps that
// filters have. k is the slower axis of both operands.
namespace ridgeline::cuda {

// clang-format off
#define RIDGELINE_TAP_D(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
  "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), \
  "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), \
  "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define RIDGELINE_TAP_REGISTERS_48 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define RIDGELINE_TAP_REGISTERS_80 RIDGELINE_TAP_REGISTERS_48 ", " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define RIDGELINE_TAP_REGISTERS_112 RIDGELINE_TAP_REGISTERS_80 ", " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define RIDGELINE_TAP_D3 RIDGELINE_TAP_D(0), RIDGELINE_TAP_D(16), RIDGELINE_TAP_D(32)
#define RIDGELINE_TAP_D5 RIDGELINE_TAP_D3, RIDGELINE_TAP_D(48), RIDGELINE_TAP_D(64)
#define RIDGELINE_TAP_D7 RIDGELINE_TAP_D5, RIDGELINE_TAP_D(80), RIDGELINE_TAP_D(96)
#define RIDGELINE_WGMMA_TAPS(TYPE, N, COUNT, OUTPUTS, A, B)                            \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {"    \
               RIDGELINE_TAP_REGISTERS_##COUNT "}, %" A ", %" B ", 1, 1, 1, 1, 1;\n"   \
               : OUTPUTS : "l"(a), "l"(b))

template <typename T, int kTaps>
__device__ inline void wgmma_taps(float (&d)[kTaps * 16], uint64_t a, uint64_t b) {
  static_assert(kTaps == 3 || kTaps == 5 || kTaps == 7);
  constexpr bool kBf16 = std::is_same_v<T, __nv_bfloat16>;
  if constexpr (kTaps == 3 && kBf16) {
    RIDGELINE_WGMMA_TAPS("bf16", 96, 48, RIDGELINE_TAP_D3, "48", "49");
  } else if constexpr (kTaps == 3) {
    RIDGELINE_WGMMA_TAPS("f16", 96, 48, RIDGELINE_TAP_D3, "48", "49");
  } else if constexpr (kTaps == 5 && kBf16) {
    RIDGELINE_WGMMA_TAPS("bf16", 160, 80, RIDGELINE_TAP_D5, "80", "81");
  } else if constexpr (kTaps == 5) {
    RIDGELINE_WGMMA_TAPS("f16", 160, 80, RIDGELINE_TAP_D5, "80", "81");
  } else if constexpr (kBf16) {
    RIDGELINE_WGMMA_TAPS("bf16", 224, 112, RIDGELINE_TAP_D7, "112", "113");
  } else {
    RIDGELINE_WGMMA_TAPS("f16", 224, 112, RIDGELINE_TAP_D7, "112", "113");
  }
}

#undef RIDGELINE_WGMMA_TAPS
#undef RIDGELINE_TAP_D
#undef RIDGELINE_TAP_D3
#undef RIDGELINE_TAP_D5
#undef RIDGELINE_TAP_D7
#undef RIDGELINE_TAP_REGISTERS_48
#undef RIDGELINE_TAP_REGISTERS_80
#undef RIDGELINE_TAP_REGISTERS_112
// clang-format on

}  // namespace ridgeline::cuda
