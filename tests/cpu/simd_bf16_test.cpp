// Products of bf16 numbers by the instructions this machine has, and by the portable kernel.
#include <gtest/gtest.h>

#include <vector>

#include "ridgeline/core/half.h"
#include "ridgeline/core/philox.h"
#include "ridgeline/cpu/simd/bf16_product.h"

namespace ridgeline::cpu::simd {
namespace {

// Small integers, whose products and sums are exact whatever the order.
std::vector<uint16_t> integers(int64_t count, uint64_t seed) {
  const Philox random{seed, 1};
  std::vector<uint16_t> bits(size_t(count), uint16_t{0});
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = Bf16(float(random.below(17, i)) - 8).bits;
  }
  return bits;
}

float number(uint16_t bits) {
  Bf16 half;
  half.bits = bits;
  return float(half);
}

class Bf16Products : public testing::TestWithParam<const Bf16Engine* (*)()> {};

TEST_P(Bf16Products, AreExactOnSmallIntegersForEveryNumberOfRows) {
  const Bf16Engine& engine = *GetParam()();
  for (const int64_t depth : {32, 96}) {
    const int64_t most = 70, lda = depth + 32;
    const auto a = integers(most * lda, 1), b = integers(depth * kBf16Panel, 2);
    for (int64_t rows = 1; rows <= most; ++rows) {
      // One more row than requested must stay unchanged.
      std::vector<float> c(size_t((rows + 1) * kBf16Panel), -1.0f);
      engine.multiply(a.data(), lda, rows, b.data(), depth, c.data());
      int64_t wrong = 0;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < kBf16Panel; ++o) {
          float sum = 0;
          for (int64_t k = 0; k < depth; ++k) {
            sum += number(a[size_t(r * lda + k)]) *
                   number(b[size_t((k / 2 * kBf16Panel + o) * 2 + k % 2)]);
          }
          wrong += c[size_t(r * kBf16Panel + o)] != sum;
        }
      }
      EXPECT_EQ(wrong, 0) << engine.name << ": " << rows << " rows, depth " << depth;
      for (int64_t o = 0; o < kBf16Panel; ++o) {
        EXPECT_EQ(c[size_t(rows * kBf16Panel + o)], -1.0f) << engine.name << " wrote past " << rows;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Bf16Products,
                         testing::Values(
                             +[] { return &bf16_engine(); },
                             +[] { return &bf16_portable_engine(); }));

}  // namespace
}  // namespace ridgeline::cpu::simd
