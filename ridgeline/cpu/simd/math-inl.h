// Vector math, compiled once per instruction set (no include guard but Highway's toggle).
#if defined(RIDGELINE_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_MATH_INL_H_
#undef RIDGELINE_CPU_SIMD_MATH_INL_H_
#else
#define RIDGELINE_CPU_SIMD_MATH_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/gemm.h"

// Loops over accumulators must be unrolled for them to live in registers, at -O2 too.
#define RIDGELINE_UNROLL _Pragma("GCC unroll 16")

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(x) for x <= 0; NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_negative(D d, V x) {
  return hn::Exp(d, x);
}

// 1 / (1 + exp(-x)) without overflow on either side.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  const V e = exp_negative(d, hn::Neg(hn::Abs(x)));
  const V s = hn::Div(one, hn::Add(one, e));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(e, s), s);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  return hn::Tanh(d, x);
}

// Calls a scalar function lane by lane: for erf, which no activation on a hot path needs.
template <class D, class V, class F>
HWY_INLINE V each_lane(D d, V x, F f) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T lanes[hn::MaxLanes(D{})];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i]);
  return hn::Load(d, lanes);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V activate(D d, Act act, V x) {
  using T = hn::TFromD<D>;
  switch (act) {
    case Act::none:
      return x;
    case Act::relu:
      return hn::Max(hn::Zero(d), x);  // in this order, NaN stays NaN on x86
    case Act::tanh:
      return HWY_NAMESPACE::tanh(d, x);
    case Act::sigmoid:
      return sigmoid(d, x);
    case Act::gelu:
      return each_lane(d, x, [](T v) { return T(0.5) * v * std::erfc(-v * T(M_SQRT1_2)); });
  }
  return x;
}

// dy * f'(saved); saved is f's output, for gelu its input.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V activation_grad(D d, Act act, V saved, V dy) {
  using T = hn::TFromD<D>;
  switch (act) {
    case Act::none:
      return dy;
    case Act::relu:
      return hn::IfThenElseZero(hn::Gt(saved, hn::Zero(d)), dy);
    case Act::tanh:
      return hn::Mul(dy, hn::NegMulAdd(saved, saved, hn::Set(d, T(1))));
    case Act::sigmoid:
      return hn::Mul(dy, hn::Mul(saved, hn::Sub(hn::Set(d, T(1)), saved)));
    case Act::gelu:
      return hn::Mul(dy, each_lane(d, saved, [](T v) {
                       const T phi = std::exp(T(-0.5) * v * v) * T(0.3989422804014327);
                       return T(0.5) * std::erfc(-v * T(M_SQRT1_2)) + v * phi;
                     }));
  }
  return dy;
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
