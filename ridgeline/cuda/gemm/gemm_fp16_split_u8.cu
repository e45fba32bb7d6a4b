// The products of fp16_split_u8_products.h, with fp16 factors and fp32 results.

#include <algorithm>

#include "ridgeline/cuda/gemm/fp16_split_u8_products.h"
#include "ridgeline/cuda/gemm/gemm.h"
#include "ridgeline/cuda/gemm/variants.cuh"

namespace ridgeline::cuda {
namespace {

// y = f(scale * power[col] * sum + bias[col]). kQuick: uses the approximate exponential and
// reciprocal, which are as accurate as tf32.
template <bool kQuick>
struct ScaledBiasActivation {
  static constexpr bool kPointwise = false;
  const float *power, *bias;
  float scale;
  ActivationFn activation;

  __device__ float2 operator()(int, int col, float2 sum, bool pair) const {
    const float2 b = load_pair(bias + col, pair), p = load_pair(power + col, pair);
    return {bend(fmaf(scale * p.x, sum.x, b.x)), bend(fmaf(scale * p.y, sum.y, b.y))};
  }
  __device__ float bend(float x) const {
    switch (activation) {
      case ActivationFn::relu:
        return x < 0.0f ? 0.0f : x;  // NaN stays NaN
      case ActivationFn::tanh:
        return tanhf(x);
      case ActivationFn::sigmoid:
        return kQuick ? __fdividef(1.0f, 1.0f + __expf(-x)) : __frcp_rn(1.0f + expf(-x));
      default:
        return x;
    }
  }
};

// SGD with the gradient scale * power[row] * sum; see SgdUpdate.
struct ScaledSgdUpdate {
  static constexpr bool kPointwise = false;
  const float* power;
  SgdUpdate update;

  __device__ float2 operator()(int row, int col, float2 sum, bool pair) const {
    const float p = power[row];
    return update(row, col, {p * sum.x, p * sum.y}, pair);
  }
};

// Tiles of one block per SM: a 3000 x 512 output has 128 of them, and 512 x 784 in four parts has
// 112. For 3000 x 784 -> 512 on an H200, in us with one term and with two: y by 192 x 64 takes 12.5
// and 18.9, by 128 x 64 14.2 and 21.2, by 128 x 128 15.6 and 21.2; a whole step with dw by 64 x 64
// takes 40.6 and 56.9, by 128 x 128 in four parts 42.3 and 54.7, in two parts 45.5 and 60.9. The
// first entry of a list is the one to use.
using Split192x64 = SplitTile<192, 64, 5>;
using Split128x128 = SplitTile<128, 128, 4>;

template <Major kA, Major kB, typename Epilogue>
class Fp16SplitGemms {
 public:
  Fp16SplitGemms(const GemmProblem& problem, const Epilogue& epilogue, const GemmOptions& options)
      : problem_(problem), epilogue_(epilogue), options_(options) {}

  template <typename Tile>
  Fp16SplitGemms& add(std::initializer_list<int> splits) {
    for (const int split : splits) {
      if (split > ceil_div(problem_.k, kStageDepth<__half>)) continue;
      list_.push_back(prepare_gemm_split<__half, float, kA, kB, Tile, Epilogue>(
          problem_, split, /*swapped=*/false, epilogue_, options_));
    }
    return *this;
  }
  std::vector<PreparedGemm> list() { return std::move(list_); }

 private:
  GemmProblem problem_;
  Epilogue epilogue_;
  GemmOptions options_;
  std::vector<PreparedGemm> list_;
};

template <bool kQuick>
std::vector<PreparedGemm> linear_gemms_of(const Fp16SplitLinear& p) {
  const int k = p.terms * p.in;
  GemmOptions options;
  options.overlap_previous = true;  // start-up overlaps the end of the previous launch
  using Epilogue = ScaledBiasActivation<kQuick>;
  return Fp16SplitGemms<Major::k, Major::k, Epilogue>(
             {p.n, p.out, k, p.x, k, Major::k, p.w, k, Major::k, p.y, p.out},
             Epilogue{p.w_power, p.b, p.scale, p.activation}, options)
      .template add<Split192x64>({1})
      .template add<Split128x64>({1})
      .list();
}

}  // namespace

std::vector<PreparedGemm> fp16_split_linear_gemms(const Fp16SplitLinear& p) {
  return p.terms == 1 ? linear_gemms_of<true>(p) : linear_gemms_of<false>(p);
}

std::vector<PreparedGemm> fp16_split_grad_w_gemms(const Fp16SplitGradW& p) {
  static_assert(sizeof(Fp16SplitScalars) == sizeof(SgdScalars));
  GemmOptions options;
  options.overlap_previous = true;
  options.early_a = options.early_b = p.early;
  Fp16SplitGemms<Major::mn, Major::mn, ScaledSgdUpdate> gemms(
      {p.out, p.in, p.terms * p.n, p.dz, p.out, Major::mn, p.x, p.in, Major::mn, p.w, p.in},
      ScaledSgdUpdate{p.dz_power,
                      {p.w, p.momentum, p.in, reinterpret_cast<const SgdScalars*>(p.scalars)}},
      options);
  if (p.terms == 1) gemms.add<Split64x64>({1});
  return gemms.add<Split128x128>({4, 2, 1}).list();  // short sums allow only fewer parts
}

}  // namespace ridgeline::cuda
