#include "ridgeline/cuda/gemm/gemm.h"
#include "ridgeline/cuda/gemm/products.h"

namespace ridgeline::cuda {
namespace {

constexpr GemmOptions kOverlapped = {.overlap_previous = true};

template <typename Epilogue>
std::vector<PreparedGemm> variants(GemmType type, const GemmProblem& problem,
                                   const Epilogue& epilogue, const GemmOptions& options) {
  switch (type) {
    case GemmType::bf16:
      return prepare_gemm_variants<__nv_bfloat16, __nv_bfloat16>(problem, epilogue, options);
    case GemmType::fp16:
      return prepare_gemm_variants<__half, __half>(problem, epilogue, options);
    case GemmType::tf32:
      break;
  }
  return {};
}

template <typename Epilogue>
std::vector<PreparedGemm> linear_variants(const LinearGemm& p, const Epilogue& epilogue) {
  const GemmProblem problem{p.n, p.out, p.in, p.x, p.in, Major::k, p.w, p.in, Major::k, p.y, p.out};
  const GemmOptions options = {.overlap_previous = true, .early_b = p.constant_w};
  if (p.type == GemmType::tf32) return prepare_gemm_tf32_variants(problem, epilogue, options);
  return variants(p.type, problem, epilogue, options);
}

}  // namespace

std::vector<PreparedGemm> linear_gemms(const LinearGemm& p) {
  if (p.relu) return linear_variants(p, BiasRelu{p.b});
  if (p.b != nullptr) return linear_variants(p, BiasOnly{p.b});
  return linear_variants(p, StoreSum{});
}

std::vector<PreparedGemm> linear_grad_x_gemms(const LinearGradXGemm& p) {
  const GemmProblem problem{p.n, p.in, p.out,     p.dy, p.out, Major::k,
                            p.w, p.in, Major::mn, p.dx, p.in};
  return variants(p.type, problem, StoreSum{}, kOverlapped);
}

std::vector<PreparedGemm> linear_grad_w_gemms(const LinearGradWGemm& p) {
  const GemmProblem problem{p.out, p.in, p.n,       p.dy, p.out, Major::mn,
                            p.x,   p.in, Major::mn, p.dw, p.in};
  if (!p.dw_fp32) return variants(p.type, problem, StoreSum{}, kOverlapped);
  if (p.type == GemmType::bf16) {
    return prepare_gemm_variants<__nv_bfloat16, float>(problem, StoreSum{}, kOverlapped);
  }
  return prepare_gemm_variants<__half, float>(problem, StoreSum{}, kOverlapped);
}

}  // namespace ridgeline::cuda
