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

// Loops over accumulators must be unrolled, also at -O2, to keep these in registers.
#define RIDGELINE_UNROLL _Pragma("GCC unroll 16")

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vec = hn::Vec<Tag<T>>;

// exp(x) for x <= 0; NaN stays NaN, which Highway's function turns into zero.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_negative(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
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

// log(1 + exp(x)) without overflow on either side; NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V softplus(D d, V x) {
  const V tail = hn::Log1p(d, exp_negative(d, hn::Neg(hn::Abs(x))));
  return hn::Add(hn::Max(hn::Zero(d), x), tail);  // in this order, NaN stays NaN on x86
}

// exp(t^2) erfc(t) (1 + 2t) as a polynomial in (t - k) / (t + k), lowest power first. Interpolated
// at the Chebyshev nodes of 0 <= t <= kMost in 40 digits; the relative error is 2.6e-8 and 1.3e-17.
template <typename T>
struct ErfcFit;
template <>
struct ErfcFit<float> {
  static constexpr float kCentre = 2, kMost = 10;
  static constexpr float kTerms[] = {
      1.276978377f,     -0.0927639492f,  -0.1660304204f,  0.1640549213f,    -0.05421426645f,
      -0.008060825113f, 0.008664255154f, 0.001327790277f, -0.001264119488f, -0.0004241225289f};
};
template <>
struct ErfcFit<double> {
  static constexpr double kCentre = 4, kMost = 27;
  static constexpr double kTerms[] = {
      1.23299511862555251,     -0.139621116840562843,     0.0153796521026212252,
      0.0680970542547319442,   -0.101039066036382122,     0.0937328349969556128,
      -0.0663303658108007322,  0.0371675155603936109,     -0.0161977340681373352,
      0.00503196976942706082,  -0.000757773277416025968,  -0.000199255548821976119,
      0.000150621970066747888, -0.0000244031494820772038, -0.0000112240767318178578,
      5.71813233232624318e-6,  3.00272477443958246e-7,    -8.35907208325165362e-7,
      6.3519065355476413e-8,   1.16247720964948924e-7,    -7.83786591630631519e-9,
      -1.40786434759724772e-8, -1.94560649724341744e-9};
};

// Phi(x) of the normal distribution, within 3 units in the last place of 1; `density` receives
// exp(-x^2 / 2). NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_below(D d, V x, V& density) {
  using T = hn::TFromD<D>;
  using Fit = ErfcFit<T>;
  const V one = hn::Set(d, T(1)), centre = hn::Set(d, Fit::kCentre);
  density = exp_negative(d, hn::Mul(hn::Mul(hn::Set(d, T(-0.5)), x), x));
  // In this order, NaN stays NaN on x86.
  const V t = hn::Min(hn::Set(d, Fit::kMost), hn::Mul(hn::Abs(x), hn::Set(d, T(M_SQRT1_2))));
  const V y = hn::Div(hn::Sub(t, centre), hn::Add(t, centre));
  constexpr int kLast = int(sizeof(Fit::kTerms) / sizeof(T)) - 1;
  V sum = hn::Set(d, Fit::kTerms[kLast]);
  for (int i = kLast - 1; i >= 0; --i) sum = hn::MulAdd(sum, y, hn::Set(d, Fit::kTerms[i]));
  const V half = hn::Mul(hn::Set(d, T(0.5)), density);
  const V tail = hn::Div(hn::Mul(half, sum), hn::Add(one, hn::Add(t, t)));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V activate(D d, SimdActivation act, V x) {
  using T = hn::TFromD<D>;
  const V zero = hn::Zero(d);
  switch (act) {
    case ActivationKind::none:
      return x;
    case ActivationKind::relu:
      return hn::Max(hn::Zero(d), x);  // in this order, NaN stays NaN on x86
    case ActivationKind::tanh:
      return HWY_NAMESPACE::tanh(d, x);
    case ActivationKind::sigmoid:
      return sigmoid(d, x);
    case ActivationKind::gelu: {
      V density;
      return hn::Mul(x, normal_below(d, x, density));
    }
    case ActivationKind::silu:
      return hn::Mul(x, sigmoid(d, x));
    case ActivationKind::leaky_relu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(hn::Set(d, T(act.parameter)), x), x);
    case ActivationKind::elu: {  // Highway's expm1 loses NaN, so it never gets one
      const V below = hn::Mul(hn::Set(d, T(act.parameter)), hn::Expm1(d, hn::Min(x, zero)));
      return hn::IfThenElse(hn::Lt(x, zero), below, x);
    }
    case ActivationKind::softplus:
      return softplus(d, x);
    case ActivationKind::hardswish: {
      const V high = hn::Min(hn::Set(d, T(6)), hn::Add(x, hn::Set(d, T(3))));
      return hn::Mul(x, hn::Mul(hn::Max(zero, high), hn::Set(d, T(1) / T(6))));
    }
  }
  return x;
}

// dy * f'(saved); saved is f's output, or its input (saves_input).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V activation_grad(D d, SimdActivation act, V saved, V dy) {
  using T = hn::TFromD<D>;
  const V zero = hn::Zero(d);
  switch (act) {
    case ActivationKind::none:
      return dy;
    case ActivationKind::relu:
      return hn::IfThenElseZero(hn::Gt(saved, hn::Zero(d)), dy);
    case ActivationKind::tanh:
      return hn::Mul(dy, hn::NegMulAdd(saved, saved, hn::Set(d, T(1))));
    case ActivationKind::sigmoid:
      return hn::Mul(dy, hn::Mul(saved, hn::Sub(hn::Set(d, T(1)), saved)));
    case ActivationKind::gelu: {  // Phi(x) + x phi(x)
      V density;
      const V below = normal_below(d, saved, density);
      const V scaled = hn::Mul(saved, hn::Set(d, T(0.3989422804014327)));
      return hn::Mul(dy, hn::MulAdd(scaled, density, below));
    }
    case ActivationKind::silu: {  // s + x s (1 - s)
      const V s = sigmoid(d, saved);
      return hn::Mul(dy, hn::MulAdd(hn::Mul(saved, s), sigmoid(d, hn::Neg(saved)), s));
    }
    case ActivationKind::leaky_relu:
      return hn::IfThenElse(hn::Gt(saved, zero), dy, hn::Mul(hn::Set(d, T(act.parameter)), dy));
    case ActivationKind::elu: {
      const V below = hn::Mul(hn::Set(d, T(act.parameter)), exp_negative(d, hn::Min(zero, saved)));
      return hn::IfThenElse(hn::Gt(saved, zero), dy, hn::Mul(dy, below));
    }
    case ActivationKind::softplus:
      return hn::Mul(dy, sigmoid(d, saved));
    case ActivationKind::hardswish: {
      const V three = hn::Set(d, T(3));
      const V inner = hn::MulAdd(saved, hn::Set(d, T(1) / T(3)), hn::Set(d, T(0.5)));
      const V slope = hn::IfThenElse(hn::Gt(saved, three), hn::Set(d, T(1)), inner);
      return hn::Mul(dy, hn::IfThenElse(hn::Lt(saved, hn::Neg(three)), zero, slope));
    }
  }
  return dy;
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
