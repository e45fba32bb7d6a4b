#include "ridgeline/cpu/simd/unary.h"

#include <algorithm>
#include <cmath>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/unary.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace unary {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's function overflows in the wrong way a little above the largest argument, so it computes
// the root of the result. NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr T kFar = sizeof(T) == 4 ? 100 : 700;  // the square is infinite
  const V half = hn::Min(hn::Set(d, kFar), hn::Mul(hn::Set(d, T(0.5)), x));
  const V root = hn::Exp(d, half);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(root, root));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V log(D d, V x) {
  const V zero = hn::Zero(d), infinite = hn::Inf(d);
  const V y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinite), hn::Log(d, x));
  const V whole = hn::IfThenElse(hn::Eq(x, infinite), x, y);
  return hn::IfThenElse(hn::Ge(x, zero), whole, hn::NaN(d));
}

// Whether Highway's sine and cosine are exact enough: they reduce large angles with too few digits.
template <class D, class V = hn::Vec<D>>
HWY_INLINE bool small_angles(D d, V x) {
  return hn::AllTrue(d, hn::Lt(hn::Abs(x), hn::Set(d, hn::TFromD<D>(1000))));
}

// Calls f for each element of a vector.
template <class D, class F, class V = hn::Vec<D>>
HWY_INLINE V each(D d, V x, F f) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i]);
  return hn::Load(d, lanes);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V value_of(D d, UnaryKind kind, V x) {
  using T = hn::TFromD<D>;
  switch (kind) {
    case UnaryKind::exp:
      return unary::exp(d, x);
    case UnaryKind::log:
      return unary::log(d, x);
    case UnaryKind::sqrt:
      return hn::Sqrt(x);
    case UnaryKind::reciprocal:
      return hn::Div(hn::Set(d, T(1)), x);
    case UnaryKind::sin:
      if (!small_angles(d, x)) return each(d, x, [](T angle) { return std::sin(angle); });
      return hn::Sin(d, x);
    case UnaryKind::floor:
      return hn::Floor(x);
    case UnaryKind::round:
      return hn::Round(x);
    case UnaryKind::step:
      break;
  }
  const V above = hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, T(1)));
  return hn::IfThenElse(hn::IsNaN(x), x, above);
}

// dy * f'(x)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gradient_of(D d, UnaryKind kind, V x, V dy) {
  using T = hn::TFromD<D>;
  switch (kind) {
    case UnaryKind::exp:
      return hn::Mul(dy, unary::exp(d, x));
    case UnaryKind::log:
      return hn::Div(dy, x);
    case UnaryKind::sqrt:
      return hn::Mul(dy, hn::Div(hn::Set(d, T(0.5)), hn::Sqrt(x)));
    case UnaryKind::reciprocal:
      return hn::Mul(dy, hn::Div(hn::Set(d, T(-1)), hn::Mul(x, x)));
    case UnaryKind::sin:
      if (!small_angles(d, x)) {
        return hn::Mul(dy, each(d, x, [](T angle) { return std::cos(angle); }));
      }
      return hn::Mul(dy, hn::Cos(d, x));
    case UnaryKind::floor:
    case UnaryKind::round:
    case UnaryKind::step:
      break;
  }
  return hn::Mul(dy, hn::Zero(d));
}

// The first `count` elements, at most a vector.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load(D d, const T* from, size_t count) {
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void store(D d, hn::Vec<D> v, T* to, size_t count) {
  hn::BlendedStore(v, hn::FirstN(d, count), d, to);
}

template <typename T>
void value(UnaryKind kind, const T* x, T* y, int64_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    const auto size = size_t(std::min(lanes, count - i));
    store(d, value_of(d, kind, load(d, x + i, size)), y + i, size);
  }
}

template <typename T>
void gradient(UnaryKind kind, const T* x, const T* dy, T* dx, int64_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    const auto size = size_t(std::min(lanes, count - i));
    const auto made = gradient_of(d, kind, load(d, x + i, size), load(d, dy + i, size));
    store(d, made, dx + i, size);
  }
}

template <typename T>
inline constexpr UnaryFunctions<T> kUnaryTable{value<T>, gradient<T>};

}  // namespace unary

RIDGELINE_SIMD_TABLE(UnaryFunctions, unary_functions, unary::kUnaryTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(UnaryFunctions, unary_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
