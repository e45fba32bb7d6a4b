#include "ridgeline/cpu/simd/signal_norm.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/signal_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace signal_norm {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using V = hn::Vec<Tag>;

// Numbers that are summed in fp32 before fp64: 64 additions per lane of 16.
constexpr int64_t kStretch = 1024;

// Returns the sum of (x - middle) or of its square over `count` numbers, a multiple of 16.
template <bool kSquared>
double sum_about(const float* x, int64_t count, float middle) {
  const Tag d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const V mean = hn::Set(d, middle);
  double total = 0;
  for (int64_t i = 0; i < count; i += kStretch) {
    const int64_t end = std::min(i + kStretch, count);
    V sum[2] = {hn::Zero(d), hn::Zero(d)};
    int64_t j = i;
    for (; j + lanes < end; j += 2 * lanes) {
      for (int k = 0; k < 2; ++k) {
        const V off = hn::Sub(hn::LoadU(d, x + j + k * lanes), mean);
        sum[k] = kSquared ? hn::MulAdd(off, off, sum[k]) : hn::Add(sum[k], off);
      }
    }
    if (j < end) {
      const V off = hn::Sub(hn::LoadU(d, x + j), mean);
      sum[0] = kSquared ? hn::MulAdd(off, off, sum[0]) : hn::Add(sum[0], off);
    }
    total += double(hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[0], sum[1]))));
  }
  return total;
}

HWY_INLINE V nan_max(V a, V b) {  // NaN if either is
  return hn::IfThenElse(hn::Eq(a, a), hn::Max(a, b), a);
}

void norm_samples(const SignalNormArgs& g, Range samples) {
  const Tag d;
  const int64_t lanes = int64_t(hn::Lanes(d)), windows = g.length / 3;
  const int64_t width = g.channels * g.length;
  constexpr int64_t kTransposed = 16;  // channels that are transposed at once
  for (int64_t i = samples.begin; i < samples.end; ++i) {
    const float* x = g.x + i * width;
    const double mean = sum_about<false>(x, width, 0.0f) / double(width);
    const double squares = sum_about<true>(x, width, float(mean));
    const float rstd = float(1.0 / std::sqrt(squares / double(width) + g.epsilon));
    const V scale = hn::Set(d, rstd), middle = hn::Set(d, float(mean));
    for (int64_t c = 0; c < g.channels; c += kTransposed) {
      float* y = g.y + (i * g.channels + c) * windows;
      for (int64_t w = 0; w < windows; ++w) {
        HWY_ALIGN float best[kTransposed];
        for (int64_t lane = 0; lane < kTransposed; lane += lanes) {
          V most = hn::Zero(d);  // relu
          for (int64_t k = 0; k < 3; ++k) {
            const int64_t at = (3 * w + k) * g.channels + c + lane;
            const V even = hn::Mul(hn::Sub(hn::LoadU(d, x + at), middle), scale);
            most = nan_max(hn::MulAdd(even, hn::LoadU(d, g.gamma + at), hn::LoadU(d, g.beta + at)),
                           most);
          }
          hn::Store(most, d, best + lane);
        }
        for (int64_t lane = 0; lane < kTransposed; ++lane) y[lane * windows + w] = best[lane];
      }
    }
  }
}

}  // namespace signal_norm

using signal_norm::norm_samples;

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

HWY_EXPORT(norm_samples);
void signal_norm(const SignalNormArgs& args, Range samples) {
  HWY_DYNAMIC_DISPATCH(norm_samples)(args, samples);
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
