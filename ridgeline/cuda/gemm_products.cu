#include "ridgeline/cuda/gemm/gemm.h"
#include "ridgeline/cuda/gemm_products.h"

namespace ridgeline::cuda {
namespace {

template <typename Epilogue>
std::vector<PreparedGemm> variants(GemmType type, const GemmProblem& problem,
                                   const Epilogue& epilogue, const GemmWorkspace& workspace) {
  GemmOptions options;
  options.workspace = workspace;
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
std::vector<PreparedGemm> linear_variants(GemmType type, const GemmProblem& problem,
                                          const Epilogue& epilogue,
                                          const GemmWorkspace& workspace) {
  GemmOptions options;
  options.workspace = workspace;
  if (type == GemmType::tf32) return prepare_gemm_tf32_variants(problem, epilogue, options);
  return variants(type, problem, epilogue, workspace);
}

}  // namespace

std::vector<PreparedGemm> linear_gemms(const LinearGemm& p) {
  const GemmProblem problem{p.n, p.out, p.in, p.x, p.in, Major::k, p.w, p.in, Major::k, p.y, p.out};
  if (p.relu) return linear_variants(p.type, problem, BiasRelu<float>{p.b}, p.workspace);
  if (p.b != nullptr) return linear_variants(p.type, problem, BiasOnly<float>{p.b}, p.workspace);
  return linear_variants(p.type, problem, StoreSum{}, p.workspace);
}

std::vector<PreparedGemm> linear_grad_x_gemms(const LinearGradXGemm& p) {
  const GemmProblem problem{p.n, p.in, p.out,     p.dy, p.out, Major::k,
                            p.w, p.in, Major::mn, p.dx, p.in};
  return variants(p.type, problem, StoreSum{}, p.workspace);
}

std::vector<PreparedGemm> linear_grad_w_gemms(const LinearGradWGemm& p) {
  const GemmProblem problem{p.out, p.in, p.n,       p.dy, p.out, Major::mn,
                            p.x,   p.in, Major::mn, p.dw, p.in};
  if (!p.wide) return variants(p.type, problem, StoreSum{}, p.workspace);
  GemmOptions options;
  options.workspace = p.workspace;
  if (p.type == GemmType::bf16) {
    return prepare_gemm_variants<__nv_bfloat16, float>(problem, StoreSum{}, options);
  }
  return prepare_gemm_variants<__half, float>(problem, StoreSum{}, options);
}

}  // namespace ridgeline::cuda
