// The epilogue of a convolution's sums, compiled once per instruction set.
#if defined(RIDGELINE_CPU_SIMD_CONV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_CONV_INL_H_
#undef RIDGELINE_CPU_SIMD_CONV_INL_H_
#else
#define RIDGELINE_CPU_SIMD_CONV_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "ridgeline/cpu/simd/layout.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns NaN if either is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V nan_max(D, V a, V b) {
  return hn::IfThenElse(hn::Eq(a, a), hn::Max(a, b), a);
}

// y = act(sums + bias); memory past the end of sums must be readable.
template <typename T>
void finish_row(SimdActivation act, T bias, const T* sums, int64_t count, T* y) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const Vec<T> b = hn::Set(d, bias);
  for (int64_t q = 0; q < count; q += lanes) {
    const Vec<T> value = activate(d, act, hn::Add(hn::LoadU(d, sums + q), b));
    if (q + lanes <= count) {
      hn::StoreU(value, d, y + q);
      continue;
    }
    T rest[kPanel<T>];  // at least a vector
    hn::StoreU(value, d, rest);
    std::copy_n(rest, count - q, y + q);
  }
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
