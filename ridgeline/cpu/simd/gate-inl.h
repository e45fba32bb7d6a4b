// Functions of recurrent gates, compiled once per instruction set.
#if defined(RIDGELINE_CPU_SIMD_GATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_GATE_INL_H_
#undef RIDGELINE_CPU_SIMD_GATE_INL_H_
#else
#define RIDGELINE_CPU_SIMD_GATE_INL_H_
#endif

#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

// A gate's natural scale is 1: results are good to a few units of the last place of 1, which lets
// them be had for half the instructions of those that keep a tiny result's every digit.
HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(x) for x <= 0. fp32: 2^n times a polynomial in the rest, fitted by least squares over
// [-1/2, 1/2] to 2e-9; below -87 as at -87. NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_exp(D d, V x) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4) {
    const hn::RebindToSigned<D> whole;
    const V scaled = hn::Mul(hn::Max(hn::Set(d, T(-87)), x), hn::Set(d, T(1.44269504)));
    const V n = hn::Round(scaled), r = hn::Sub(scaled, n);
    V p = hn::Set(d, T(1.5337577e-4));
    p = hn::MulAdd(p, r, hn::Set(d, T(1.3399860e-3)));
    p = hn::MulAdd(p, r, hn::Set(d, T(9.6185195e-3)));
    p = hn::MulAdd(p, r, hn::Set(d, T(5.5503290e-2)));
    p = hn::MulAdd(p, r, hn::Set(d, T(2.4022647e-1)));
    p = hn::MulAdd(p, r, hn::Set(d, T(6.9314721e-1)));
    p = hn::MulAdd(p, r, hn::Set(d, T(1)));
    const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(whole, n), hn::Set(whole, 127)));
    return hn::Mul(p, hn::BitCast(d, power));
  } else {
    return hn::Exp(d, x);
  }
}

// 1 / x for x in [1, 2]. AVX-512 starts from 14 bits, so that one Newton step is enough; a division
// takes longer than all the rest of a gate.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_reciprocal(D d, V x) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4 && HWY_TARGET <= HWY_AVX3) {
    const V guess = hn::ApproximateReciprocal(x);
    return hn::Mul(guess, hn::NegMulAdd(guess, x, hn::Set(d, T(2))));
  } else {
    return hn::Div(hn::Set(d, T(1)), x);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_sigmoid(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  const V e = gate_exp(d, hn::Neg(hn::Abs(x)));
  const V s = gate_reciprocal(d, hn::Add(one, e));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(e, s), s);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_tanh(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  const V e = gate_exp(d, hn::Mul(hn::Set(d, hn::TFromD<D>(-2)), hn::Abs(x)));
  return hn::CopySign(hn::Mul(hn::Sub(one, e), gate_reciprocal(d, hn::Add(one, e))), x);
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
