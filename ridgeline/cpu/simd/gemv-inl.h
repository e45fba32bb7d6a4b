// Streams packed weights through a few samples, compiled once per instruction set.
#if defined(RIDGELINE_CPU_SIMD_GEMV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_GEMV_INL_H_
#undef RIDGELINE_CPU_SIMD_GEMV_INL_H_
#else
#define RIDGELINE_CPU_SIMD_GEMV_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kPanelVectors: vectors of outputs in a panel. kMostTogether: samples that pass through the
// weights together; the sums of more would not fit into registers.
constexpr int kPanelVectors = 4;
constexpr int kMostTogether = kManyRegisters ? 2 : 1;

// The number of separate sums of one element, so that additions need not wait for each other: two
// multiply-adds of four cycles start per cycle. It does not depend on the number of samples in a
// group, so that a sample's result does not depend on its position in the batch.
constexpr int separate_sums(int vectors) { return std::clamp(8 / vectors, 1, 8); }

// Prefetching of weights is left to the hardware: on an EPYC (Zen 4), prefetching 1, 4 or 8 KiB
// ahead changed an LSTM step from the second-level cache by -5 % to 9 %, and made one from the
// third 23 % slower.
//
// acc[s][j] += sum over k of x[s * stride + k] * w[k][vector j]. Returns the end of w.
template <int kVectors, int kSamples>
HWY_INLINE const float* add_rows(const float* HWY_RESTRICT w, int64_t depth,
                                 const float* HWY_RESTRICT x, int64_t stride,
                                 Vec<float> (&acc)[kSamples][kVectors]) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), row = kVectors * lanes;
  constexpr int kSums = separate_sums(kVectors);
  Vec<float> sums[kSums][kSamples][kVectors];
  RIDGELINE_UNROLL
  for (int p = 0; p < kSums; ++p) {
    RIDGELINE_UNROLL
    for (int s = 0; s < kSamples; ++s) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) sums[p][s][j] = p == 0 ? acc[s][j] : hn::Zero(d);
    }
  }
  const auto add = [&](int64_t k, Vec<float>(&to)[kSamples][kVectors]) HWY_ATTR {
    Vec<float> weights[kVectors];
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) weights[j] = hn::Load(d, w + j * lanes);
    RIDGELINE_UNROLL
    for (int s = 0; s < kSamples; ++s) {
      const Vec<float> value = hn::Set(d, x[s * stride + k]);
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) to[s][j] = hn::MulAdd(value, weights[j], to[s][j]);
    }
    w += row;
  };
  int64_t k = 0;
  for (; k + kSums <= depth; k += kSums) {
    RIDGELINE_UNROLL
    for (int p = 0; p < kSums; ++p) add(k + p, sums[p]);
  }
  for (; k < depth; ++k) add(k, sums[0]);
  RIDGELINE_UNROLL
  for (int s = 0; s < kSamples; ++s) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      acc[s][j] = sums[0][s][j];
      RIDGELINE_UNROLL
      for (int p = 1; p < kSums; ++p) acc[s][j] = hn::Add(acc[s][j], sums[p][s][j]);
    }
  }
  return w;
}

// Loads the first `count` elements and zeros for the others; `count` may exceed a vector.
HWY_INLINE Vec<float> load_part(const float* from, int64_t count) {
  const Tag<float> d;
  if (count >= int64_t(hn::Lanes(d))) return hn::LoadU(d, from);
  return hn::MaskedLoad(hn::FirstN(d, size_t(count)), d, from);
}
HWY_INLINE void store_part(Vec<float> v, float* to, int64_t count) {
  const Tag<float> d;
  if (count >= int64_t(hn::Lanes(d))) return hn::StoreU(v, d, to);
  hn::BlendedStore(v, hn::FirstN(d, size_t(std::max<int64_t>(count, 0))), d, to);
}

// Calls f with the number of samples of each group as a constant, and the first of them.
template <class F>
HWY_INLINE void for_sample_groups(int64_t samples, F&& f) {
  int64_t s = 0;
  if constexpr (kMostTogether == 2) {
    for (; s + 2 <= samples; s += 2) f(std::integral_constant<int, 2>(), s);
  }
  for (; s < samples; ++s) f(std::integral_constant<int, 1>(), s);
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
