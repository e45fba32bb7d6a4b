#pragma once

#include "ridgeline/cuda/device/wgmma.cuh"
#include "ridgeline/cuda/gemm/epilogue.cuh"
#include "ridgeline/cuda/gemm/problem.h"

// The products this library is built with. prepare_gemm_variants gives every way to compute a
// problem; a planner times them. The kernels are in gemm_persistent.cuh, gemm_split.cuh,
// gemm_thin.cuh, gemm_flat.cuh, gemm_mma.cuh; variants.cuh chooses; gemm_*.cu instantiate them.
namespace ridgeline::cuda {

// m, n, k >= 1. The list is never empty on sm_80 and up; the most promising variant comes first.
template <typename In, typename Out, typename Epilogue>
std::vector<PreparedGemm> prepare_gemm_variants(const GemmProblem& problem,
                                                const Epilogue& epilogue,
                                                const GemmOptions& options);

// The same for float matrices multiplied in tf32 (rounded to 11 bits). wgmma takes tf32
// only k-major: for other layouts, and for pitches the copy engine refuses, the list is empty.
template <typename Epilogue>
std::vector<PreparedGemm> prepare_gemm_tf32_variants(const GemmProblem& problem,
                                                     const Epilogue& epilogue,
                                                     const GemmOptions& options);

template <typename T>
using BiasOnly = BiasActivation<T, Activation::none, BiasAxis::col>;
template <typename T>
using BiasRelu = BiasActivation<T, Activation::relu, BiasAxis::col>;
template <typename T>
using ReluMask = GradientMask<T, Activation::relu>;

// clang-format off
#define RIDGELINE_GEMM(PREFIX, IN, OUT, ...)                                             \
  PREFIX template std::vector<PreparedGemm> prepare_gemm_variants<IN, OUT, __VA_ARGS__>( \
      const GemmProblem&, const __VA_ARGS__&, const GemmOptions&);
#define RIDGELINE_GEMM_TF32(PREFIX, ...)                                                 \
  PREFIX template std::vector<PreparedGemm> prepare_gemm_tf32_variants<__VA_ARGS__>(     \
      const GemmProblem&, const __VA_ARGS__&, const GemmOptions&);
#define RIDGELINE_GEMM_PLAIN(PREFIX, T)           \
  RIDGELINE_GEMM(PREFIX, T, T, StoreSum)          \
  RIDGELINE_GEMM(PREFIX, T, float, StoreSum)
#define RIDGELINE_GEMM_LINEAR(PREFIX, T)          \
  RIDGELINE_GEMM(PREFIX, T, T, BiasOnly<float>)   \
  RIDGELINE_GEMM(PREFIX, T, T, BiasRelu<float>)   \
  RIDGELINE_GEMM(PREFIX, T, T, ReluMask<T>)       \
  RIDGELINE_GEMM(PREFIX, T, T, SgdUpdate<T>)      \
  RIDGELINE_GEMM(PREFIX, T, T, SgdUpdate<float>)  \
  RIDGELINE_GEMM(PREFIX, T, T, AdamUpdate<float>)
// clang-format on

RIDGELINE_GEMM_PLAIN(extern, __nv_bfloat16)
RIDGELINE_GEMM_LINEAR(extern, __nv_bfloat16)
RIDGELINE_GEMM_PLAIN(extern, __half)
RIDGELINE_GEMM_LINEAR(extern, __half)
RIDGELINE_GEMM_TF32(extern, StoreSum)
RIDGELINE_GEMM_TF32(extern, BiasOnly<float>)
RIDGELINE_GEMM_TF32(extern, BiasRelu<float>)

}  // namespace ridgeline::cuda
