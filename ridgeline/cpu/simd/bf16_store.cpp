#include "ridgeline/cpu/simd/bf16_store.h"

#include "ridgeline/core/half.h"
#include "ridgeline/cpu/simd/bf16_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/bf16_store.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace bf16_store {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;  // a panel is a multiple of a vector
using V = hn::Vec<Floats>;

HWY_INLINE V nan_max(V a, V b) {  // NaN if either is
  return hn::IfThenElse(hn::Eq(a, a), hn::Max(a, b), a);
}

void widen_halves(const uint16_t* from, float* to, int64_t count) {
  const Floats d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_halves(d, from + i), d, to + i);
  for (; i < count; ++i) {
    Bf16 half;
    half.bits = from[i];
    to[i] = float(half);
  }
}

void narrow_floats(const float* from, uint16_t* to, int64_t count) {
  const Floats d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store_halves(hn::LoadU(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = Bf16(from[i]).bits;
}

void store_pooled_rows(const Bf16ConvEnd& end, const float* c, int64_t rows, uint16_t* y) {
  const Floats d;
  const int64_t lanes = int64_t(hn::Lanes(d)), results = end.pool ? rows / 3 : rows;
  for (int64_t t = 0; t < results; ++t) {
    const float* from = c + (end.pool ? 3 * t : t) * kBf16Panel;
    for (int64_t o = 0; o < kBf16Panel; o += lanes) {
      V value = hn::LoadU(d, from + o);
      if (end.pool) {
        value = nan_max(nan_max(value, hn::LoadU(d, from + kBf16Panel + o)),
                        hn::LoadU(d, from + 2 * kBf16Panel + o));
      }
      value = hn::Add(value, hn::LoadU(d, end.bias + o));  // the same for all three
      if (end.relu) value = nan_max(value, hn::Zero(d));
      store_halves(value, d, y + t * end.out + o);
    }
  }
}

}  // namespace bf16_store

using bf16_store::narrow_floats;
using bf16_store::store_pooled_rows;
using bf16_store::widen_halves;

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

HWY_EXPORT(widen_halves);
HWY_EXPORT(narrow_floats);
HWY_EXPORT(store_pooled_rows);
void widen_bf16(const uint16_t* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(widen_halves)(from, to, count);
}
void narrow_bf16(const float* from, uint16_t* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(narrow_floats)(from, to, count);
}
void store_bf16_rows(const Bf16ConvEnd& end, const float* c, int64_t rows, uint16_t* y) {
  HWY_DYNAMIC_DISPATCH(store_pooled_rows)(end, c, rows, y);
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
