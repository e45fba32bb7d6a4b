// Functions of recurrent gates, compiled once per instruction set.
#if defined(RIDGELINE_CPU_SIMD_GATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_GATE_INL_H_
#undef RIDGELINE_CPU_SIMD_GATE_INL_H_
#else
#define RIDGELINE_CPU_SIMD_GATE_INL_H_
#endif

#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

// The natural scale of a gate is 1: results are accurate to a few units in the last place of 1,
// which takes half the instructions of functions that keep every digit of tiny results.
HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(factor * x), which must lie between 2^-125 and 2^125 (fp32). It is 2^n times a polynomial in
// the rest, with a relative error of 1.7e-7 including its own rounding: fitted over [-1/2, 1/2] to
// 9e-8, 1 at 0. Adding 1.5 * 2^23 leaves n in the lowest bits. NaN stays NaN.
template <class D, class V = hn::Vec<D>, typename T = hn::TFromD<D>>
HWY_INLINE V gate_exp(D d, V x, T factor) {
  if constexpr (sizeof(T) == 4) {
    const hn::RebindToSigned<D> whole;
    const V binary = hn::Set(d, factor * T(1.44269504)), magic = hn::Set(d, T(12582912));
    const V shifted = hn::MulAdd(x, binary, magic);
    const V r = hn::MulSub(x, binary, hn::Sub(shifted, magic));
    V p = hn::Set(d, T(1.3264727e-3));
    p = hn::MulAdd(p, r, hn::Set(d, T(9.6715130e-3)));
    p = hn::MulAdd(p, r, hn::Set(d, T(5.5507336e-2)));
    p = hn::MulAdd(p, r, hn::Set(d, T(2.4022242e-1)));
    p = hn::MulAdd(p, r, hn::Set(d, T(6.9314700e-1)));
    p = hn::MulAdd(p, r, hn::Set(d, T(1)));
    const auto power = hn::ShiftLeft<23>(hn::BitCast(whole, shifted));
    return hn::BitCast(d, hn::Add(hn::BitCast(whole, p), power));
  } else {
    return hn::Exp(d, hn::Mul(x, hn::Set(d, factor)));
  }
}

// x / y for y >= 1. AVX-512 starts from 14 bits of 1 / y, so that one Newton step suffices; a
// division takes longer there than the rest of a gate.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_divide(D d, V x, V y) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4 && HWY_TARGET <= HWY_AVX3) {
    const V guess = hn::ApproximateReciprocal(y);
    return hn::Mul(x, hn::Mul(guess, hn::NegMulAdd(guess, y, hn::Set(d, T(2)))));
  } else {
    return hn::Div(x, y);
  }
}

// Clamps x to [-most, most]; NaN stays NaN (on x86 in this order).
template <class D, class V = hn::Vec<D>, typename T = hn::TFromD<D>>
HWY_INLINE V gate_clamp(D d, V x, T most) {
  return hn::Min(hn::Set(d, most), hn::Max(hn::Set(d, -most), x));
}

// 1 / (1 + exp(-x)); beyond the clamp it is 0 or 1 to within rounding.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_sigmoid(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
  const V e = gate_exp(d, gate_clamp(d, x, T(sizeof(T) == 4 ? 86 : 700)), T(-1));
  return gate_divide(d, one, hn::Add(one, e));
}

// (exp(2 x) - 1) / (exp(2 x) + 1); 1 beyond the clamp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_tanh(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
  const V e = gate_exp(d, gate_clamp(d, x, T(sizeof(T) == 4 ? 9.5 : 20)), T(2));
  return gate_divide(d, hn::Sub(e, one), hn::Add(e, one));
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
