#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Warpgroup matrix multiply (wgmma, sm_90a): D[64, N] += A[64, k] B[k, N], with A and B in shared
// memory, D in the registers of 128 threads, and k = 32 bytes.
namespace ridgeline::cuda {

// The contiguous axis of an operand: k, or its other axis (m of A, n of B).
enum class Major { k, mn };

// A shared-memory matrix descriptor; leading and stride are the two byte strides of the swizzled
// layout, swizzle is its width in bytes.
__device__ inline uint64_t wgmma_descriptor(uint32_t address, uint32_t leading, uint32_t stride,
                                            int swizzle) {
  const uint64_t layout = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(leading >> 4) << 16 |
         uint64_t(stride >> 4) << 32 | layout << 62;
}

// Needed before the first wgmma, and whenever other instructions have written its registers.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving uses of the accumulators across the preceding wait.
template <int kCount>
__device__ inline void wgmma_keep(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// One instruction for each width N. `accumulate` false overwrites d. The asm operands are the
// accumulators, the two descriptors, accumulate, and whether A and B are transposed (mn-major).
// clang-format off
#define RIDGELINE_REGISTERS_8 \
  "%0, %1, %2, %3, %4, %5, %6, %7"
#define RIDGELINE_REGISTERS_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define RIDGELINE_REGISTERS_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RIDGELINE_REGISTERS_48 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define RIDGELINE_REGISTERS_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RIDGELINE_REGISTERS_96 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define RIDGELINE_REGISTERS_104 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103"
#define RIDGELINE_REGISTERS_128 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define RIDGELINE_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
  "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define RIDGELINE_D16(i) RIDGELINE_D8(i), RIDGELINE_D8(i + 8)
#define RIDGELINE_D32(i) RIDGELINE_D16(i), RIDGELINE_D16(i + 16)
#define RIDGELINE_D48(i) RIDGELINE_D32(i), RIDGELINE_D16(i + 32)
#define RIDGELINE_D64(i) RIDGELINE_D32(i), RIDGELINE_D32(i + 32)
#define RIDGELINE_D96(i) RIDGELINE_D64(i), RIDGELINE_D32(i + 64)
#define RIDGELINE_D104(i) RIDGELINE_D96(i), RIDGELINE_D8(i + 96)
#define RIDGELINE_D128(i) RIDGELINE_D64(i), RIDGELINE_D64(i + 64)

// P0..P4: the operand numbers after the accumulators.
#define RIDGELINE_WGMMA_HALF(TYPE, N, COUNT, P0, P1, P2, P3, P4)                        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P2 ", 0;\n"                        \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE          \
               " {" RIDGELINE_REGISTERS_##COUNT "}, %" P0 ", %" P1 ", p, 1, 1, %" P3    \
               ", %" P4 ";\n}\n"                                                        \
               : RIDGELINE_D##COUNT(0)                                                  \
               : "l"(a), "l"(b), "r"(int(accumulate)), "n"(int(kTransA)), "n"(int(kTransB)))
#define RIDGELINE_WGMMA_TF32(N, COUNT, P0, P1, P2)                                      \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P2 ", 0;\n"                        \
               "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32"                \
               " {" RIDGELINE_REGISTERS_##COUNT "}, %" P0 ", %" P1 ", p, 1, 1;\n}\n"    \
               : RIDGELINE_D##COUNT(0)                                                  \
               : "l"(a), "l"(b), "r"(int(accumulate)))
#define RIDGELINE_WGMMA_WIDTH(N, COUNT, P0, P1, P2, P3, P4)                             \
  template <typename T, bool kTransA, bool kTransB>                                     \
  __device__ inline void wgmma(float (&d)[COUNT], uint64_t a, uint64_t b, bool accumulate) { \
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {                                   \
      RIDGELINE_WGMMA_HALF("bf16", N, COUNT, P0, P1, P2, P3, P4);                       \
    } else if constexpr (std::is_same_v<T, __half>) {                                   \
      RIDGELINE_WGMMA_HALF("f16", N, COUNT, P0, P1, P2, P3, P4);                        \
    } else {                                                                            \
      static_assert(!kTransA && !kTransB, "tf32 operands are k-major");                 \
      RIDGELINE_WGMMA_TF32(N, COUNT, P0, P1, P2);                                       \
    }                                                                                   \
  }
RIDGELINE_WGMMA_WIDTH(16, 8, "8", "9", "10", "11", "12")
RIDGELINE_WGMMA_WIDTH(32, 16, "16", "17", "18", "19", "20")
RIDGELINE_WGMMA_WIDTH(64, 32, "32", "33", "34", "35", "36")
RIDGELINE_WGMMA_WIDTH(96, 48, "48", "49", "50", "51", "52")
RIDGELINE_WGMMA_WIDTH(128, 64, "64", "65", "66", "67", "68")
RIDGELINE_WGMMA_WIDTH(192, 96, "96", "97", "98", "99", "100")
RIDGELINE_WGMMA_WIDTH(208, 104, "104", "105", "106", "107", "108")
RIDGELINE_WGMMA_WIDTH(256, 128, "128", "129", "130", "131", "132")

#undef RIDGELINE_WGMMA_WIDTH
#undef RIDGELINE_WGMMA_TF32
#undef RIDGELINE_WGMMA_HALF
#undef RIDGELINE_REGISTERS_8
#undef RIDGELINE_D8
#undef RIDGELINE_REGISTERS_16
#undef RIDGELINE_D16
#undef RIDGELINE_REGISTERS_32
#undef RIDGELINE_D32
#undef RIDGELINE_REGISTERS_48
#undef RIDGELINE_D48
#undef RIDGELINE_REGISTERS_64
#undef RIDGELINE_D64
#undef RIDGELINE_REGISTERS_96
#undef RIDGELINE_D96
#undef RIDGELINE_REGISTERS_104
#undef RIDGELINE_D104
#undef RIDGELINE_REGISTERS_128
#undef RIDGELINE_D128
// clang-format on

}  // namespace ridgeline::cuda
