#include "ridgeline/cpu/simd/dropout.h"

#include <algorithm>

#include "ridgeline/core/philox.h"

#define HWY_DISABLED_TARGETS HWY_SSSE3
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/dropout.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<uint64_t>;
using WideVec = hn::Vec<Wide>;

// The 64-bit product of the low halves.
HWY_INLINE WideVec product(WideVec a, WideVec b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(Wide(), hn::GetLane(a) * hn::GetLane(b));  // one lane: no pairs to multiply
#else
  const hn::Repartition<uint32_t, Wide> narrow;
  return hn::MulEven(hn::BitCast(narrow, a), hn::BitCast(narrow, b));
#endif
}

// Philox4x32-10 of consecutive counters, one a lane, each word in the low half of its lane; the
// four words of lane l go to words[0..3][l]. The same numbers as Philox::words.
HWY_INLINE void philox_block(uint64_t counter, uint64_t stream, uint64_t seed, uint64_t* words) {
  const Wide d;
  const WideVec low = hn::Set(d, 0xffffffffu);
  const WideVec counters = hn::Add(hn::Set(d, counter), hn::Iota(d, 0));
  WideVec c0 = hn::And(counters, low), c1 = hn::ShiftRight<32>(counters);
  WideVec c2 = hn::Set(d, stream & 0xffffffffu), c3 = hn::Set(d, stream >> 32);
  const WideVec m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const WideVec p0 = product(c0, m0), p1 = product(c2, m1);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, uint64_t{k0}));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, uint64_t{k1}));
    c1 = hn::And(p1, low);
    c3 = hn::And(p0, low);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const size_t lanes = hn::Lanes(d);
  hn::StoreU(c0, d, words);
  hn::StoreU(c1, d, words + lanes);
  hn::StoreU(c2, d, words + 2 * lanes);
  hn::StoreU(c3, d, words + 3 * lanes);
}

template <typename T>
void dropout(const DropoutArgs<T>& g, Range elements) {
  const int64_t lanes = int64_t(hn::Lanes(Wide()));
  HWY_ALIGN uint64_t words[4 * HWY_MAX_BYTES / sizeof(uint64_t)];
  int64_t i = elements.begin;
  while (i < elements.end) {
    const uint64_t element = g.first + uint64_t(i);
    const uint64_t counter = element / 4;
    philox_block(counter, g.stream, g.seed, words);
    const int64_t skipped = int64_t(element % 4);  // of this block's first counter
    const int64_t count = std::min(4 * lanes - skipped, elements.end - i);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t number = skipped + j;
      const uint32_t word = uint32_t(words[number % 4 * lanes + number / 4]);
      const bool keep = float(word >> 8) * 0x1p-24f >= g.p;
      g.y[i + j] = keep ? g.x[i + j] * g.scale : T(0);
    }
    i += count;
  }
}

DropoutKernel<float> float_dropout() { return dropout<float>; }
DropoutKernel<double> double_dropout() { return dropout<double>; }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

HWY_EXPORT(float_dropout);
HWY_EXPORT(double_dropout);

template <>
DropoutKernel<float> dropout_kernel<float>() {
  return HWY_DYNAMIC_DISPATCH(float_dropout)();
}
template <>
DropoutKernel<double> dropout_kernel<double>() {
  return HWY_DYNAMIC_DISPATCH(double_dropout)();
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
