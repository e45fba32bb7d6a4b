#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "ridgeline/cuda/device/mbarrier.cuh"

// Instructions that the chain of convolutions needs beside those in device/: wgmma with 224
// columns, transposed stores of matrices, and arrivals on behalf of a whole warpgroup.
namespace ridgeline::cuda {

// clang-format off
#define RIDGELINE_CHAIN_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
  "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define RIDGELINE_CHAIN_D56(i) RIDGELINE_CHAIN_D8(i), RIDGELINE_CHAIN_D8(i + 8), \
  RIDGELINE_CHAIN_D8(i + 16), RIDGELINE_CHAIN_D8(i + 24), RIDGELINE_CHAIN_D8(i + 32), \
  RIDGELINE_CHAIN_D8(i + 40), RIDGELINE_CHAIN_D8(i + 48)
#define RIDGELINE_CHAIN_WGMMA(TYPE)                                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %114, 0;\n"                          \
      "wgmma.mma_async.sync.aligned.m64n224k16.f32." TYPE "." TYPE " {"                 \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "                    \
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "          \
      "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "          \
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "          \
      "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "          \
      "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "          \
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "          \
      "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"\
      "}, %112, %113, p, 1, 1, 0, 0;\n}\n"                                             \
      : RIDGELINE_CHAIN_D56(0), RIDGELINE_CHAIN_D56(56)                                 \
      : "l"(a), "l"(b), "r"(int(accumulate)))

// d (+)= A[64, 16] B[16, 224]; both operands are given by descriptors (device/wgmma.cuh) and are
// contiguous along k.
template <typename T>
__device__ inline void wgmma_224(float (&d)[112], uint64_t a, uint64_t b, bool accumulate) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    RIDGELINE_CHAIN_WGMMA("bf16");
  } else {
    RIDGELINE_CHAIN_WGMMA("f16");
  }
}

#undef RIDGELINE_CHAIN_WGMMA
#undef RIDGELINE_CHAIN_D56
#undef RIDGELINE_CHAIN_D8
// clang-format on

// Like store_matrices (device/shared_matrix.cuh), with each matrix transposed.
__device__ inline void store_matrices_transposed(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

// Arrives once for each of `threads` threads.
__device__ inline void mbarrier_arrive_for(Mbarrier* barrier, uint32_t threads) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)),
               "r"(threads)
               : "memory");
}

}  // namespace ridgeline::cuda
