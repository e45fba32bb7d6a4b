#include "ridgeline/cpu/simd/mse.h"

#include <algorithm>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/mse.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vec = hn::Vec<Tag<T>>;

// Adds the squares of x - target of one row to `sums`, lane by lane.
template <typename T>
HWY_INLINE Vec<T> add_row(const MseArgs<T>& g, int64_t r, Vec<T> sums) {
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  using Index = hn::TFromD<decltype(di)>;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const Vec<T> one = hn::Set(d, T(1)), factor = hn::Set(d, g.factor);
  for (int64_t c = 0; c < g.out; c += lanes) {
    const int64_t at = r * g.out + c;
    const auto live = hn::FirstN(d, size_t(std::min(lanes, g.out - c)));
    Vec<T> target;
    if (g.label != nullptr) {
      const auto hit = hn::Eq(hn::Iota(di, 0), hn::Set(di, Index(g.label[r] - c)));
      target = hn::IfThenElseZero(hn::RebindMask(d, hit), one);
    } else {
      target = hn::MaskedLoad(live, d, g.target + at);
    }
    // Past the end of a row x is zero, so a label's target must be zero too.
    const Vec<T> off = hn::IfThenElseZero(live, hn::Sub(hn::MaskedLoad(live, d, g.x + at), target));
    sums = hn::MulAdd(off, off, sums);
    if (g.dx != nullptr) hn::BlendedStore(hn::Mul(factor, off), live, d, g.dx + at);
  }
  return sums;
}

template <typename T>
bool first_largest_at(const T* x, int64_t out, int32_t label) {
  bool first = true;
  for (int64_t c = 0; c < out; ++c) first &= c < label ? x[c] < x[label] : !(x[c] > x[label]);
  return first;
}

template <typename T>
void run_mse(const MseArgs<T>& g, Range groups) {
  const Tag<T> d;
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    const int64_t end = std::min((group + 1) * kGroup<T>, g.n);
    Vec<T> sums = hn::Zero(d);
    int32_t correct = 0;
    for (int64_t r = group * kGroup<T>; r < end; ++r) {
      sums = add_row(g, r, sums);
      if (g.correct != nullptr) correct += first_largest_at(g.x + r * g.out, g.out, g.label[r]);
    }
    if (g.loss != nullptr) g.loss[group] = double(hn::GetLane(hn::SumOfLanes(d, sums)));
    if (g.correct != nullptr) g.correct[group] = correct;
  }
}

template <typename T>
inline constexpr MseFunctions<T> kMseTable{run_mse<T>};
RIDGELINE_SIMD_TABLE(MseFunctions, mse_functions, kMseTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(MseFunctions, mse_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
