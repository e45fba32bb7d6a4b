#include "ridgeline/cpu/simd/weighted_xent.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/weighted_xent.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace weighted_xent {

// Calls f(first class, mask of existing classes) for each vector of a row.
template <typename T, class F>
HWY_INLINE void for_classes(int64_t classes, F f) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t c = 0; c < classes; c += lanes) {
    f(c, hn::FirstN(d, size_t(std::min(lanes, classes - c))));
  }
}

// Returns the loss of one row and writes its gradient, if these are wanted.
template <typename T>
double run_row(const WeightedXentArgs<T>& g, int64_t r) {
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  using Index = hn::TFromD<decltype(di)>;
  const T* x = g.x + r * g.classes;
  T* dx = g.dx != nullptr ? g.dx + r * g.classes : nullptr;
  const int32_t label = g.label[r];
  const T hit = (T(1) - g.smoothing) * g.weights[label], share = g.smoothing / T(g.classes);
  const T targets = hit + share * g.total;

  const Vec<T> least = hn::Set(d, -std::numeric_limits<T>::infinity());
  Vec<T> most = least;
  for_classes<T>(g.classes, [&](int64_t c, auto live) HWY_ATTR {
    most = hn::Max(most, hn::IfThenElse(live, hn::MaskedLoad(live, d, x + c), least));
  });
  const Vec<T> max = hn::MaxOfLanes(d, most);
  Vec<T> sums = hn::Zero(d);
  for_classes<T>(g.classes, [&](int64_t c, auto live) HWY_ATTR {
    const Vec<T> e = exp_negative(d, hn::Sub(hn::MaskedLoad(live, d, x + c), max));
    sums = hn::Add(sums, hn::IfThenElseZero(live, e));
  });
  const T sum = hn::GetLane(hn::SumOfLanes(d, sums));
  const Vec<T> log_sum = hn::Set(d, std::log(sum)), scale = hn::Set(d, targets / sum);
  const T weight = g.sample_weights != nullptr ? g.sample_weights[r / g.timesteps] : T(1);
  const Vec<T> shares = hn::Set(d, share), hits = hn::Set(d, hit);
  const Vec<T> factor = hn::Set(d, g.factor * weight);

  Vec<T> losses = hn::Zero(d);
  for_classes<T>(g.classes, [&](int64_t c, auto live) HWY_ATTR {
    const auto here = hn::Eq(hn::Iota(di, 0), hn::Set(di, Index(label - c)));
    const Vec<T> smooth = hn::Mul(shares, hn::MaskedLoad(live, d, g.weights + c));
    const Vec<T> target = hn::Add(smooth, hn::IfThenElseZero(hn::RebindMask(d, here), hits));
    const Vec<T> off = hn::Sub(hn::MaskedLoad(live, d, x + c), max);
    // A class without a target is excluded, whatever its logit is.
    const auto counts = hn::And(live, hn::Ne(target, hn::Zero(d)));
    losses = hn::Add(losses, hn::IfThenElseZero(counts, hn::Mul(target, hn::Sub(log_sum, off))));
    if (dx == nullptr) return;
    const Vec<T> grad = hn::MulSub(scale, exp_negative(d, off), target);
    hn::BlendedStore(hn::Mul(factor, grad), live, d, dx + c);
  });
  return double(weight) * double(hn::GetLane(hn::SumOfLanes(d, losses)));
}

template <typename T>
bool first_largest_at(const T* x, int64_t out, int32_t label) {
  bool first = true;
  for (int64_t c = 0; c < out; ++c) first &= c < label ? x[c] < x[label] : !(x[c] > x[label]);
  return first;
}

template <typename T>
void run_weighted_xent(const WeightedXentArgs<T>& g, Range groups) {
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    const int64_t end = std::min((group + 1) * kGroup<T>, g.n);
    double loss = 0;
    int32_t correct = 0;
    for (int64_t r = group * kGroup<T>; r < end; ++r) {
      if (g.correct != nullptr) {
        correct += first_largest_at(g.x + r * g.classes, g.classes, g.label[r]);
      }
      loss += run_row(g, r);
    }
    if (g.loss != nullptr) g.loss[group] = loss;
    if (g.correct != nullptr) g.correct[group] = correct;
  }
}

template <typename T>
inline constexpr WeightedXentFunctions<T> kXentTable{run_weighted_xent<T>};

}  // namespace weighted_xent

RIDGELINE_SIMD_TABLE(WeightedXentFunctions, weighted_xent_functions, weighted_xent::kXentTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(WeightedXentFunctions, weighted_xent_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
