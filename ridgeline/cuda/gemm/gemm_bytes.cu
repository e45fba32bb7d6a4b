// The products of byte_products.h: bf16 factors, fp32 results.

#include <algorithm>

#include "ridgeline/cuda/byte_products.h"
#include "ridgeline/cuda/gemm/gemm.h"
#include "ridgeline/cuda/gemm/variants.cuh"

namespace ridgeline::cuda {
namespace {

// y = f(scale * sum + bias[col]); full precision, unlike the half products' epilogues.
struct ScaledBiasCurve {
  static constexpr bool kPointwise = false;
  const float* bias;
  float scale;
  Curve curve;

  __device__ float2 operator()(int, int col, float2 sum, bool pair) const {
    const float2 b = load_pair(bias + col, pair);
    return {bend(fmaf(scale, sum.x, b.x)), bend(fmaf(scale, sum.y, b.y))};
  }
  __device__ float bend(float x) const {
    switch (curve) {
      case Curve::relu:
        return x < 0.0f ? 0.0f : x;  // NaN stays NaN
      case Curve::tanh:
        return tanhf(x);
      case Curve::sigmoid:
        return 1.0f / (1.0f + expf(-x));
      default:
        return x;
    }
  }
};

// All ways to compute it, the one to take first. That is tiles of 128 x 64, k shared out until
// there are 1.4 blocks an SM (two fit on one). Of 3000 x 784 -> 512 on an H200, us,
// and the estimate's own choice beside it: y 21.0, 23.0 with two terms, 28.2, 28.4 with three;
// dw 20.7, 32.4 and 27.6, 42.9.
template <Major kA, Major kB, typename Epilogue>
std::vector<PreparedGemm> byte_gemms(const GemmProblem& problem, const Epilogue& epilogue) {
  GemmOptions options;
  options.overlap_previous = true;  // they start up while the kernel before ends
  std::vector<PreparedGemm> list;
  GemmVariants<__nv_bfloat16, float, kA, kB, Epilogue>(problem, epilogue, options).add_wgmma(list);
  sort_by_estimate(list);
  const int tiles = ceil_div(problem.m, 128) * ceil_div(problem.n, 64);
  const int sms = current_gemm_device().sms;
  for (const int split : {1, 2, 3, 4, 5, 6, 8}) {
    if (10 * tiles * split < 14 * sms && split < 8) continue;
    const std::string name = fmt::format("wgmma_split{}_128x64_", split);
    const auto best = std::find_if(list.begin(), list.end(), [&](const PreparedGemm& gemm) {
      return gemm.name.starts_with(name);
    });
    if (best != list.end()) std::rotate(list.begin(), best, best + 1);
    break;
  }
  return list;
}

}  // namespace

std::vector<PreparedGemm> byte_linear_gemms(const ByteLinear& p) {
  const int k = p.terms * p.in;
  return byte_gemms<Major::k, Major::k>(
      {p.n, p.out, k, p.x, k, Major::k, p.w, k, Major::k, p.y, p.out},
      ScaledBiasCurve{p.b, p.scale, p.curve});
}

std::vector<PreparedGemm> byte_grad_w_gemms(const ByteGradW& p) {
  static_assert(sizeof(ByteScalars) == sizeof(SgdScalars));
  return byte_gemms<Major::mn, Major::mn>(
      {p.out, p.in, p.terms * p.n, p.dz, p.out, Major::mn, p.x, p.in, Major::mn, p.w, p.in},
      SgdUpdate<float>{p.w, p.momentum, p.in, reinterpret_cast<const SgdScalars*>(p.scalars)});
}

}  // namespace ridgeline::cuda
