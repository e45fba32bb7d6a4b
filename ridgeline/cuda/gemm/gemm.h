#pragma once

#include "ridgeline/cuda/device/wgmma.cuh"
#include "ridgeline/cuda/gemm/epilogue.cuh"
#include "ridgeline/cuda/gemm/problem.h"

// The products this library is built with. prepare_gemm_variants returns every way to compute a
// problem, and the planner measures them. The GPU functions are in gemm_persistent.cuh,
// gemm_split.cuh, gemm_flat.cuh and gemm_mma.cuh; variants.cuh selects them, and gemm_*.cu
// instantiate them.
namespace ridgeline::cuda {

// m, n, k >= 1. The list is never empty on sm_80 and up; the most promising variant comes first.
template <typename In, typename Out, typename Epilogue>
std::vector<PreparedGemm> prepare_gemm_variants(const GemmProblem& problem,
                                                const Epilogue& epilogue,
                                                const GemmOptions& options);

// Prepares products of float matrices in tf32 (rounded to 11 bits). wgmma takes tf32 only
// k-major: for other layouts, and for pitches that TMA does not accept, the list is empty.
template <typename Epilogue>
std::vector<PreparedGemm> prepare_gemm_tf32_variants(const GemmProblem& problem,
                                                     const Epilogue& epilogue,
                                                     const GemmOptions& options);

// Whether a product is built: the three of a linear layer with weights w[out, in], which are y = x
// w^T with its epilogues, dx = dy w, and dw = dy^T x. Only dw may be wider than its factors.
template <typename In, typename Out, typename Epilogue>
constexpr bool gemm_is_built(Major a, Major b) {
  const bool grad_w = a == Major::mn && b == Major::mn;
  if (!std::is_same_v<In, Out>) return grad_w && std::is_same_v<Epilogue, StoreSum>;
  if (a == Major::k && b == Major::k) return true;
  const bool grad_x = a == Major::k && b == Major::mn;
  return sizeof(In) == 2 && std::is_same_v<Epilogue, StoreSum> && (grad_x || grad_w);
}

// clang-format off
#define RIDGELINE_GEMM(PREFIX, IN, OUT, EPILOGUE)                                     \
  PREFIX template std::vector<PreparedGemm> prepare_gemm_variants<IN, OUT, EPILOGUE>( \
      const GemmProblem&, const EPILOGUE&, const GemmOptions&);
#define RIDGELINE_GEMM_TF32(PREFIX, EPILOGUE)                                         \
  PREFIX template std::vector<PreparedGemm> prepare_gemm_tf32_variants<EPILOGUE>(     \
      const GemmProblem&, const EPILOGUE&, const GemmOptions&);
// clang-format on
#define RIDGELINE_GEMM_PLAIN(PREFIX, T)  \
  RIDGELINE_GEMM(PREFIX, T, T, StoreSum) \
  RIDGELINE_GEMM(PREFIX, T, float, StoreSum)
#define RIDGELINE_GEMM_LINEAR(PREFIX, T) \
  RIDGELINE_GEMM(PREFIX, T, T, BiasOnly) \
  RIDGELINE_GEMM(PREFIX, T, T, BiasRelu)

RIDGELINE_GEMM_PLAIN(extern, __nv_bfloat16)
RIDGELINE_GEMM_LINEAR(extern, __nv_bfloat16)
RIDGELINE_GEMM_PLAIN(extern, __half)
RIDGELINE_GEMM_LINEAR(extern, __half)
RIDGELINE_GEMM_TF32(extern, StoreSum)
RIDGELINE_GEMM_TF32(extern, BiasOnly)
RIDGELINE_GEMM_TF32(extern, BiasRelu)

}  // namespace ridgeline::cuda
