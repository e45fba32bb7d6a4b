#include "ridgeline/core/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ridgeline {
namespace {

// The two formats by their definition: a sign, an exponent with a bias, a mantissa.
template <typename T>
class Half : public testing::Test {
 protected:
  static constexpr int kMantissa = std::is_same_v<T, Fp16> ? 10 : 7;
  static constexpr int kBias = std::is_same_v<T, Fp16> ? 15 : 127;
  static constexpr int kInfinity = (0x7fff >> kMantissa) << kMantissa;

  static T pattern(int bits) {
    T half;
    half.bits = uint16_t(bits);
    return half;
  }

  // The magnitude of a pattern below 0x8000. Infinity's pattern counts as the power of two that
  // comes next, which is what rounding to nearest compares with.
  static double magnitude(int bits) {
    const int exponent = bits >> kMantissa, mantissa = bits & ((1 << kMantissa) - 1);
    const double significand = mantissa + (exponent > 0 ? 1 << kMantissa : 0);
    return std::ldexp(significand, std::max(exponent, 1) - kBias - kMantissa);
  }

  // Rounding by arithmetic: to the nearest multiple of the last place, ties to even.
  static float round_slowly(float value) {
    const double x = std::abs(double(value));
    if (x == 0 || !std::isfinite(x)) return value;
    const double place = std::ldexp(1.0, std::max(std::ilogb(x), 1 - kBias) - kMantissa);
    const double rounded = std::nearbyint(x / place) * place;
    const float result =
        rounded >= magnitude(kInfinity) ? std::numeric_limits<float>::infinity() : float(rounded);
    return std::copysign(result, value);
  }
};

using Halves = testing::Types<Fp16, Bf16>;
TYPED_TEST_SUITE(Half, Halves);

TYPED_TEST(Half, EveryPatternDecodesByTheDefinition) {
  for (int bits = 0; bits < this->kInfinity; ++bits) {
    const auto want = float(this->magnitude(bits));
    ASSERT_EQ(float(this->pattern(bits)), want) << bits;
    ASSERT_EQ(float(this->pattern(bits | 0x8000)), -want) << bits;
    ASSERT_TRUE(std::signbit(float(this->pattern(bits | 0x8000)))) << bits;
  }
  EXPECT_EQ(float(this->pattern(this->kInfinity)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(float(this->pattern(this->kInfinity | 0x8000)),
            -std::numeric_limits<float>::infinity());
}

TYPED_TEST(Half, EveryPatternSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const TypeParam again(float(this->pattern(bits)));
    if ((bits & 0x7fff) > this->kInfinity) {
      ASSERT_TRUE(std::isnan(float(again))) << bits;
      ASSERT_EQ(again.bits & 0x8000, bits & 0x8000) << bits;
    } else {
      ASSERT_EQ(again.bits, bits);
    }
  }
}

// Rounding is monotonic, so that the points around each midpoint settle all floats.
TYPED_TEST(Half, EveryMidpointGoesToEvenAndItsNeighboursToTheirSides) {
  for (int low = 0; low < this->kInfinity; ++low) {
    const double exact = (this->magnitude(low) + this->magnitude(low + 1)) / 2;
    const auto middle = float(exact);
    ASSERT_EQ(double(middle), exact) << low;
    const float below = std::nextafter(middle, 0.0f);
    const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    const int even = low + (low & 1);
    ASSERT_EQ(TypeParam(middle).bits, even) << low;
    ASSERT_EQ(TypeParam(below).bits, low) << low;
    ASSERT_EQ(TypeParam(above).bits, low + 1) << low;
    ASSERT_EQ(TypeParam(-middle).bits, even | 0x8000) << low;
    ASSERT_EQ(TypeParam(-below).bits, low | 0x8000) << low;
    ASSERT_EQ(TypeParam(-above).bits, (low + 1) | 0x8000) << low;
  }
}

TYPED_TEST(Half, FloatsOfAllMagnitudesRoundAsArithmeticDoes) {
  constexpr uint64_t kStride = 4093;  // prime: every low-order bit pattern comes up
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += kStride) {
    const auto value = std::bit_cast<float>(uint32_t(bits));
    const auto got = float(TypeParam(value));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, this->round_slowly(value)) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(value)) << bits;
    }
  }
}

TYPED_TEST(Half, NanWithAPayloadInTheLowBitsOnlyStaysNan) {
  EXPECT_TRUE(std::isnan(float(TypeParam(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(float(TypeParam(std::bit_cast<float>(0xff800001u)))));
}

}  // namespace
}  // namespace ridgeline
