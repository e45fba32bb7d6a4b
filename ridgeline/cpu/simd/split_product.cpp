// The portable form of split_product.h, to compare with.
#include "ridgeline/cpu/simd/split_product.h"

#include <bit>
#include <cmath>

#include "ridgeline/core/half.h"

namespace ridgeline::cpu::simd {
namespace {

constexpr int64_t kPart = kSplitSide * kSplitSide;

float widen(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// The nearest bf16, of what is left the nearest, and the rest. A number that would round to
// infinity is cut off instead; infinity and NaN have no rest.
void split(float x, uint16_t* to) {
  for (int64_t p = 0; p < 3; ++p) {
    uint16_t bits = Bf16(x).bits;
    if (std::isfinite(x) && !std::isfinite(widen(bits))) bits = std::bit_cast<uint32_t>(x) >> 16;
    to[p * kPart] = bits;
    x = std::isfinite(x) ? x - widen(bits) : 0.0f;
  }
}

// Where element (row, k) of the left operand and (k, column) of the right one lie in a part.
int64_t left_at(int64_t row, int64_t k) { return row * kSplitSide + k; }
int64_t right_at(int64_t k, int64_t column) {
  return column / 16 * (kPart / 2) + k / 2 * 32 + column % 16 * 2 + k % 2;
}

void split_left(const float* a, int64_t lda, int64_t rows, int64_t depth, uint16_t* block) {
  for (int64_t row = 0; row < kSplitSide; ++row) {
    for (int64_t k = 0; k < kSplitSide; ++k) {
      split(row < rows && k < depth ? a[row * lda + k] : 0.0f, block + left_at(row, k));
    }
  }
}

void split_right(const float* b, int64_t ldb, int64_t depth, int64_t columns, uint16_t* block) {
  for (int64_t k = 0; k < kSplitSide; ++k) {
    for (int64_t column = 0; column < kSplitSide; ++column) {
      split(k < depth && column < columns ? b[k * ldb + column] : 0.0f,
            block + right_at(k, column));
    }
  }
}

void multiply_block(const uint16_t* a, const uint16_t* b, float* c, int64_t ldc) {
  constexpr int kPairs[6][2] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}};
  for (const auto& [p, q] : kPairs) {
    for (int64_t row = 0; row < kSplitSide; ++row) {
      for (int64_t k = 0; k < kSplitSide; ++k) {
        const float left = widen(a[p * kPart + left_at(row, k)]);
        for (int64_t column = 0; column < kSplitSide; ++column) {
          c[row * ldc + column] += left * widen(b[q * kPart + right_at(k, column)]);
        }
      }
    }
  }
}

void multiply(const uint16_t* a, const uint16_t* b, int64_t blocks, float* c, int64_t ldc,
              bool add) {
  for (int64_t row = 0; row < kSplitSide && !add; ++row) {
    for (int64_t column = 0; column < kSplitSide; ++column) c[row * ldc + column] = 0;
  }
  for (int64_t i = 0; i < blocks; ++i) {
    multiply_block(a + i * kSplitBlock, b + i * kSplitBlock, c, ldc);
  }
}

void nothing() {}

}  // namespace

const SplitEngine& split_portable_engine() {
  static constexpr SplitEngine kEngine{"portable", split_left, split_right,
                                       nothing,    nothing,    multiply};
  return kEngine;
}

}  // namespace ridgeline::cpu::simd
