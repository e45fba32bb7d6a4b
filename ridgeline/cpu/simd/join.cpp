#include "ridgeline/cpu/simd/join.h"

#include <algorithm>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/join.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace join {
namespace hn = hwy::HWY_NAMESPACE;

// Calls f(index) for whole vectors, then tail(index) for each element that is left.
template <typename T, class F, class G>
HWY_INLINE void for_elements(Range elements, F f, G tail) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = elements.begin;
  for (; i + lanes <= elements.end; i += lanes) f(i);
  for (; i < elements.end; ++i) tail(i);
}

template <typename T>
void add(const T* const* xs, int64_t count, T scale, T* y, Range elements) {
  const hn::ScalableTag<T> d;
  const auto factor = hn::Set(d, scale);
  for_elements<T>(
      elements,
      [&](int64_t i) HWY_ATTR {
        auto sum = hn::LoadU(d, xs[0] + i);
        for (int64_t x = 1; x < count; ++x) sum = hn::Add(sum, hn::LoadU(d, xs[x] + i));
        hn::StoreU(hn::Mul(sum, factor), d, y + i);
      },
      [&](int64_t i) {
        T sum = xs[0][i];
        for (int64_t x = 1; x < count; ++x) sum += xs[x][i];
        y[i] = sum * scale;
      });
}

template <typename T>
void multiply(const T* a, const T* b, T* y, Range elements) {
  const hn::ScalableTag<T> d;
  for_elements<T>(
      elements,
      [&](int64_t i)
          HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i); },
      [&](int64_t i) { y[i] = a[i] * b[i]; });
}

template <typename T>
inline constexpr JoinFunctions<T> kJoinTable{add<T>, multiply<T>};

}  // namespace join

RIDGELINE_SIMD_TABLE(JoinFunctions, join_functions, join::kJoinTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(JoinFunctions, join_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
