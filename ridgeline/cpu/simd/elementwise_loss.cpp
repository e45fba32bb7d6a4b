#include "ridgeline/cpu/simd/elementwise_loss.h"

#include <algorithm>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/elementwise_loss.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace elementwise_loss {

// Returns the losses of a vector of elements; `slope` becomes their derivatives by x. NaN stays
// NaN.
template <ElementFn kFn, typename T>
HWY_INLINE Vec<T> losses(Vec<T> x, Vec<T> target, Vec<T> weight, Vec<T> delta, Vec<T>& slope) {
  const Tag<T> d;
  const Vec<T> zero = hn::Zero(d), one = hn::Set(d, T(1)), half = hn::Set(d, T(0.5));
  const Vec<T> off = hn::Sub(x, target), size = hn::Abs(off);
  // 1 with the sign of `off`; 0 for 0 and NaN for NaN.
  const Vec<T> sign = hn::IfThenElse(hn::Gt(size, zero), hn::CopySign(one, off), off);
  if constexpr (kFn == ElementFn::squared_error) {
    slope = hn::Add(off, off);
    return hn::Mul(off, off);
  } else if constexpr (kFn == ElementFn::mae) {
    slope = sign;
    return size;
  } else if constexpr (kFn == ElementFn::huber) {
    const auto far = hn::Gt(size, delta);
    slope = hn::IfThenElse(far, hn::Mul(delta, sign), off);
    const Vec<T> linear = hn::Mul(delta, hn::NegMulAdd(half, delta, size));
    return hn::IfThenElse(far, linear, hn::Mul(hn::Mul(half, off), off));
  } else if constexpr (kFn == ElementFn::bce_with_logits) {
    const Vec<T> part = hn::MulAdd(hn::Sub(weight, one), target, one), rest = hn::Sub(one, target);
    const Vec<T> minus = hn::Neg(x);
    slope = hn::NegMulAdd(part, sigmoid(d, minus), rest);
    return hn::MulAdd(rest, x, hn::Mul(part, softplus(d, minus)));
  } else {
    const Vec<T> w = hn::IfThenElse(hn::Lt(off, zero), weight, hn::Sub(one, weight));
    slope = hn::Mul(w, sign);
    return hn::Mul(w, size);
  }
}

// Returns the targets of `count` columns from c on.
template <typename T>
HWY_INLINE Vec<T> targets(const ElementwiseLossArgs<T>& g, int64_t r, int64_t c, int64_t count) {
  const Tag<T> d;
  if (g.label != nullptr) {
    const hn::RebindToSigned<Tag<T>> di;
    using Index = hn::TFromD<decltype(di)>;
    const auto hit = hn::Eq(hn::Iota(di, 0), hn::Set(di, Index(g.label[r] - c)));
    return hn::IfThenElseZero(hn::RebindMask(d, hit), hn::Set(d, T(1)));
  }
  const T* row = g.target + r * g.columns;
  if (g.columns == g.out) return hn::MaskedLoad(hn::FirstN(d, size_t(count)), d, row + c);
  HWY_ALIGN T shared[HWY_MAX_BYTES / sizeof(T)] = {};
  for (int64_t i = 0; i < count; ++i) shared[i] = row[(c + i) / (g.out / g.columns)];
  return hn::Load(d, shared);
}

// Adds the losses of one row to `sums`, lane by lane.
template <ElementFn kFn, typename T>
HWY_INLINE Vec<T> add_row(const ElementwiseLossArgs<T>& g, int64_t r, Vec<T> sums) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const T row_weight = g.sample_weights != nullptr ? g.sample_weights[r / g.timesteps] : T(1);
  const Vec<T> row = hn::Set(d, row_weight), delta = hn::Set(d, g.delta);
  const Vec<T> factor = hn::Set(d, g.factor * row_weight);
  constexpr bool kWeighted = kFn == ElementFn::bce_with_logits || kFn == ElementFn::quantile;
  for (int64_t c = 0; c < g.out; c += lanes) {
    const int64_t at = r * g.out + c, count = std::min(lanes, g.out - c);
    const auto live = hn::FirstN(d, size_t(count));
    Vec<T> slope, weight = hn::Zero(d);
    if constexpr (kWeighted) weight = hn::MaskedLoad(live, d, g.weights + c);
    const Vec<T> loss = losses<kFn, T>(hn::MaskedLoad(live, d, g.x + at), targets(g, r, c, count),
                                       weight, delta, slope);
    sums = hn::Add(sums, hn::IfThenElseZero(live, hn::Mul(row, loss)));
    if (g.dx != nullptr) hn::BlendedStore(hn::Mul(factor, slope), live, d, g.dx + at);
  }
  return sums;
}

template <typename T>
bool first_largest_at(const T* x, int64_t out, int32_t label) {
  bool first = true;
  for (int64_t c = 0; c < out; ++c) first &= c < label ? x[c] < x[label] : !(x[c] > x[label]);
  return first;
}

template <ElementFn kFn, typename T>
void run_groups(const ElementwiseLossArgs<T>& g, Range groups) {
  const Tag<T> d;
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    const int64_t end = std::min((group + 1) * kGroup<T>, g.n);
    Vec<T> sums = hn::Zero(d);
    int32_t correct = 0;
    for (int64_t r = group * kGroup<T>; r < end; ++r) {
      sums = add_row<kFn>(g, r, sums);
      if (g.correct != nullptr) correct += first_largest_at(g.x + r * g.out, g.out, g.label[r]);
    }
    if (g.loss != nullptr) g.loss[group] = double(hn::GetLane(hn::SumOfLanes(d, sums)));
    if (g.correct != nullptr) g.correct[group] = correct;
  }
}

template <typename T>
void run_elementwise_loss(const ElementwiseLossArgs<T>& g, Range groups) {
  switch (g.fn) {
    case ElementFn::mae:
      return run_groups<ElementFn::mae>(g, groups);
    case ElementFn::huber:
      return run_groups<ElementFn::huber>(g, groups);
    case ElementFn::bce_with_logits:
      return run_groups<ElementFn::bce_with_logits>(g, groups);
    case ElementFn::quantile:
      return run_groups<ElementFn::quantile>(g, groups);
    case ElementFn::squared_error:
      return run_groups<ElementFn::squared_error>(g, groups);
  }
}

template <typename T>
inline constexpr ElementwiseLossFunctions<T> kLossTable{run_elementwise_loss<T>};

}  // namespace elementwise_loss

RIDGELINE_SIMD_TABLE(ElementwiseLossFunctions, elementwise_loss_functions,
                     elementwise_loss::kLossTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(ElementwiseLossFunctions, elementwise_loss_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
