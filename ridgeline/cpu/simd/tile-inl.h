// The register tile that all products share, compiled once per instruction set.
#if defined(RIDGELINE_CPU_SIMD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_TILE_INL_H_
#undef RIDGELINE_CPU_SIMD_TILE_INL_H_
#else
#define RIDGELINE_CPU_SIMD_TILE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Tile sizes. 32 registers: 8 x 2 accumulators along the batch (a panel is two vectors), 8 x 3
// along `in` in the weight gradient; both run at the FMA ceiling from the second-level cache. 16
// registers: 6 x 2. CPUs without AVX2 take two rows, for a short build and 0.2 MB less code.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;
constexpr int kTileRows = kManyRegisters ? 8 : HWY_TARGET == HWY_SCALAR ? 2 : 6;

// The layout of the broadcast operand's element (m, k): rows `lda` apart along m, or along k.
enum class Along { k, m };

// acc[m][j] += sum over k of a(m, k) * b[k * ldb + vector j]
template <int kRows, int kVectors, Along along, typename T>
HWY_INLINE void accumulate(int64_t k_end, const T* HWY_RESTRICT a, int64_t lda,
                           const T* HWY_RESTRICT b, int64_t ldb, Vec<T> (&acc)[kRows][kVectors]) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto add = [&](int64_t k) HWY_ATTR {
    Vec<T> row[kVectors];
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) row[j] = hn::LoadU(d, b + k * ldb + j * lanes);
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const Vec<T> value = hn::Set(d, along == Along::k ? a[m * lda + k] : a[k * lda + m]);
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) acc[m][j] = hn::MulAdd(value, row[j], acc[m][j]);
    }
  };
  int64_t k = 0;
  // A core that also runs another hyperthread is limited by instructions before arithmetic
  // (6 x 2 on an EPYC: 166 of 201 GFLOP/s one by one, 186 two by two).
  for (; k + 2 <= k_end; k += 2) {
    add(k);
    add(k + 1);
  }
  if (k < k_end) add(k);
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
