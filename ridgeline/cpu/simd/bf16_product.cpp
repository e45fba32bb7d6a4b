#include "ridgeline/cpu/simd/bf16_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/bf16_product.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace bf16_product {
namespace hn = hwy::HWY_NAMESPACE;

using V = Vec<float>;
using BitTag = hn::RebindToUnsigned<Tag<float>>;

HWY_INLINE V first_of(hn::Vec<BitTag> pairs) {
  return hn::BitCast(Tag<float>(), hn::ShiftLeft<16>(pairs));
}
HWY_INLINE V second_of(hn::Vec<BitTag> pairs) {
  return hn::BitCast(Tag<float>(), hn::And(pairs, hn::Set(BitTag(), 0xffff0000u)));
}

constexpr int kRowTile = 4;  // by two vectors: eight sums, and the operands

template <int kRows>
HWY_NOINLINE void multiply_rows(const uint16_t* a, int64_t lda, const uint16_t* b, int64_t depth,
                                float* c) {
  const Tag<float> d;
  const BitTag bits;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t o = 0; o < kBf16Panel; o += 2 * lanes) {
    V acc[kRows][2];
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) acc[m][0] = acc[m][1] = hn::Zero(d);
    for (int64_t k = 0; k < depth; k += 2) {
      const auto* pairs = reinterpret_cast<const uint32_t*>(b + k * kBf16Panel) + o;
      V first[2], second[2];
      RIDGELINE_UNROLL
      for (int j = 0; j < 2; ++j) {
        const auto pair = hn::LoadU(bits, pairs + j * lanes);
        first[j] = first_of(pair);
        second[j] = second_of(pair);
      }
      RIDGELINE_UNROLL
      for (int m = 0; m < kRows; ++m) {
        const auto pair = hn::Set(bits, a[m * lda + k] | uint32_t{a[m * lda + k + 1]} << 16);
        const V left = first_of(pair), right = second_of(pair);
        RIDGELINE_UNROLL
        for (int j = 0; j < 2; ++j) {
          acc[m][j] = hn::MulAdd(right, second[j], hn::MulAdd(left, first[j], acc[m][j]));
        }
      }
    }
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < 2; ++j) hn::StoreU(acc[m][j], d, c + m * kBf16Panel + o + j * lanes);
    }
  }
}

template <int kRows>
void multiply_rest(int64_t rows, const uint16_t* a, int64_t lda, const uint16_t* b, int64_t depth,
                   float* c) {
  if (rows >= kRows) return multiply_rows<kRows>(a, lda, b, depth, c);
  if constexpr (kRows > 1) multiply_rest<kRows - 1>(rows, a, lda, b, depth, c);
}

void multiply(const uint16_t* a, int64_t lda, int64_t rows, const uint16_t* b, int64_t depth,
              float* c) {
  for (int64_t r = 0; r < rows; r += kRowTile) {
    multiply_rest<kRowTile>(rows - r, a + r * lda, lda, b, depth, c + r * kBf16Panel);
  }
}

}  // namespace bf16_product

Bf16Multiply portable_multiply() { return bf16_product::multiply; }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

HWY_EXPORT(portable_multiply);
const Bf16Engine& bf16_portable_engine() {
  static const Bf16Engine engine{"fp32", HWY_DYNAMIC_DISPATCH(portable_multiply)()};
  return engine;
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
