// The portable form of split_product.h, for comparison.
#include "ridgeline/cpu/simd/split_product.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ridgeline/core/half.h"

namespace ridgeline::cpu::simd {
namespace {

constexpr int64_t kPart = kSplitPart;

float bf16_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Splits x into the nearest bf16, the nearest bf16 of the remainder, and the rest. A number that
// would round to infinity is truncated instead; infinity and NaN are their own last part.
void split_value(float x, uint16_t* to) {
  if (!std::isfinite(x)) {
    to[0] = to[kPart] = 0;
    to[2 * kPart] = Bf16(x).bits;
    return;
  }
  for (int64_t p = 0; p < 3; ++p) {
    uint16_t bits = Bf16(x).bits;
    if (!std::isfinite(bf16_value(bits))) bits = std::bit_cast<uint32_t>(x) >> 16;
    to[p * kPart] = bits;
    x -= bf16_value(bits);
  }
}

// The index of element (row, k) of the left operand and (k, column) of the right one in a part.
int64_t left_at(int64_t row, int64_t k) { return row * kSplitSide + k; }
int64_t right_at(int64_t k, int64_t column) {
  return column / 16 * (kPart / 2) + k / 2 * 32 + column % 16 * 2 + k % 2;
}

template <bool kTransposed>
void split_left(const float* a, int64_t lda, int64_t rows, int64_t depth, uint16_t* block) {
  for (int64_t row = 0; row < kSplitSide; ++row) {
    for (int64_t k = 0; k < kSplitSide; ++k) {
      const int64_t at = kTransposed ? k * lda + row : row * lda + k;
      split_value(row < rows && k < depth ? a[at] : 0.0f, block + left_at(row, k));
    }
  }
}

template <bool kTransposed>
void split_right(const float* b, int64_t ldb, int64_t depth, int64_t columns, uint16_t* block) {
  for (int64_t k = 0; k < kSplitSide; ++k) {
    for (int64_t column = 0; column < kSplitSide; ++column) {
      const int64_t at = kTransposed ? column * ldb + k : k * ldb + column;
      split_value(k < depth && column < columns ? b[at] : 0.0f, block + right_at(k, column));
    }
  }
}

void take_right(const float* b, int64_t ldb, int64_t depth, int64_t columns, uint16_t* block) {
  uint16_t all[kSplitBlock];
  split_right<false>(b, ldb, depth, columns, all);
  std::copy_n(all, kPart, block);
}

void multiply_block(const uint16_t* a, const uint16_t* b, int parts_of_b, float* c, int64_t ldc) {
  constexpr int kPairs[6][2] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}};
  for (const auto& [p, q] : kPairs) {
    if (q >= parts_of_b) continue;
    for (int64_t row = 0; row < kSplitSide; ++row) {
      for (int64_t k = 0; k < kSplitSide; ++k) {
        const float left = bf16_value(a[p * kPart + left_at(row, k)]);
        for (int64_t column = 0; column < kSplitSide; ++column) {
          c[row * ldc + column] += left * bf16_value(b[q * kPart + right_at(k, column)]);
        }
      }
    }
  }
}

template <int kPartsOfB>
void multiply(const uint16_t* a, const uint16_t* b, int64_t blocks, float* c, int64_t ldc,
              bool add) {
  for (int64_t row = 0; row < kSplitSide && !add; ++row) {
    for (int64_t column = 0; column < kSplitSide; ++column) c[row * ldc + column] = 0;
  }
  for (int64_t i = 0; i < blocks; ++i) {
    multiply_block(a + i * kSplitBlock, b + i * kPartsOfB * kPart, kPartsOfB, c, ldc);
  }
}

void finish_rows(float* c, int64_t ldc, int64_t rows, float scale, const float* bias,
                 bool rectified) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < kSplitSide; ++column) {
      float& v = c[row * ldc + column];
      v = v * scale + (bias != nullptr ? bias[row] : 0.0f);
      if (rectified && v < 0) v = 0;
    }
  }
}

void nothing() {}

}  // namespace

const SplitEngine& split_portable_engine() {
  static constexpr SplitEngine kEngine{"portable",       split_left<false>, split_right<false>,
                                       split_left<true>, split_right<true>, take_right,
                                       nothing,          nothing,           multiply<3>,
                                       multiply<1>,      finish_rows};
  return kEngine;
}

}  // namespace ridgeline::cpu::simd
