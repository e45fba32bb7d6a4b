// Conversions of fp32 vectors from and to bits of bf16, compiled once per instruction set.
#if defined(RIDGELINE_CPU_SIMD_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_BF16_INL_H_
#undef RIDGELINE_CPU_SIMD_BF16_INL_H_
#else
#define RIDGELINE_CPU_SIMD_BF16_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// D is a tag of floats.
template <class D>
HWY_INLINE hn::Vec<D> load_halves(D d, const uint16_t* from) {
  const hn::Rebind<uint16_t, D> halves;
  const auto bits = hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(halves, from));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

// Rounds to nearest even and keeps NaN.
template <class D>
HWY_INLINE void store_halves(hn::Vec<D> value, D, uint16_t* to) {
  const hn::RebindToUnsigned<D> d;
  const auto bits = hn::BitCast(d, value);
  const auto high = hn::ShiftRight<16>(bits);
  const auto even = hn::And(high, hn::Set(d, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), even));
  const auto quiet = hn::Or(high, hn::Set(d, 0x40));
  const auto number = hn::RebindMask(d, hn::Eq(value, value));
  const auto result = hn::BitCast(hn::RebindToSigned<D>(), hn::IfThenElse(number, rounded, quiet));
  const hn::Rebind<uint16_t, D> halves;
  hn::StoreU(hn::DemoteTo(halves, result), halves, to);
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
