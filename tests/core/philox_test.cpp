#include "ridgeline/core/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace ridgeline {
namespace {

// The known answers that the authors of Philox publish for philox4x32 with 10 rounds.
struct KnownAnswer {
  uint32_t counter[4], key[2], output[4];
};
constexpr KnownAnswer kKnownAnswers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},  // the digits of pi
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

uint64_t join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

TEST(Philox, GivesThePublishedAnswers) {
  for (const KnownAnswer& known : kKnownAnswers) {
    const Philox philox{.seed = join(known.key[0], known.key[1]),
                        .stream = join(known.counter[2], known.counter[3])};
    const auto words = philox.words(join(known.counter[0], known.counter[1]));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.w[i], known.output[i]) << i;
  }
}

TEST(Philox, ElementsAreTheWordsInOrder) {
  const Philox philox{.seed = 7, .stream = streams::kDropout};
  for (uint64_t index = 0; index < 64; ++index) {
    EXPECT_EQ(philox.word(index), philox.words(index / 4).w[index % 4]);
    EXPECT_EQ(philox.uniform(index), float(double(philox.word(index) >> 8) / 16777216.0));
  }
}

TEST(Philox, SeedsAndStreamsDiffer) {
  std::set<uint32_t> first;
  for (const uint64_t stream : {streams::kInit, streams::kShuffle, streams::kDropout,
                                streams::kAugment, streams::kSample}) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
      first.insert(Philox{seed, stream}.word(0));
      first.insert(Philox{seed, stream + 1}.word(0));
    }
  }
  EXPECT_EQ(first.size(), 30u);
}

// Six standard errors: a right generator fails once in 5e8 seeds, and the seed is fixed.
constexpr int kSamples = 200000;
constexpr double kSigmas = 6.0;

TEST(Philox, UniformsFillTheUnitInterval) {
  const Philox philox{.seed = 3, .stream = streams::kSample};
  double sum = 0, squares = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double x = philox.uniform(uint64_t(i));
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
    squares += x * x;
  }
  const double mean = sum / kSamples;
  EXPECT_NEAR(mean, 0.5, kSigmas * std::sqrt(1.0 / 12 / kSamples));
  EXPECT_NEAR(squares / kSamples, 1.0 / 3, kSigmas * std::sqrt(4.0 / 45 / kSamples));
}

TEST(Philox, NormalsHaveTheMomentsOfTheNormal) {
  const Philox philox{.seed = 3, .stream = streams::kInit};
  double moment[5] = {};
  for (int i = 0; i < kSamples; ++i) {
    const double x = philox.normal(uint64_t(i));
    ASSERT_TRUE(std::isfinite(x));
    for (int power = 1; power <= 4; ++power) moment[power] += std::pow(x, power) / kSamples;
  }
  // Var(x^p) of the standard normal: 1, 2, 15, 96.
  EXPECT_NEAR(moment[1], 0.0, kSigmas * std::sqrt(1.0 / kSamples));
  EXPECT_NEAR(moment[2], 1.0, kSigmas * std::sqrt(2.0 / kSamples));
  EXPECT_NEAR(moment[3], 0.0, kSigmas * std::sqrt(15.0 / kSamples));
  EXPECT_NEAR(moment[4], 3.0, kSigmas * std::sqrt(96.0 / kSamples));
}

TEST(Philox, NormalsNextToEachOtherAreIndependent) {
  const Philox philox{.seed = 5, .stream = streams::kInit};
  double product = 0;
  for (int i = 0; i < kSamples; ++i) {
    product += philox.normal(uint64_t(2 * i)) * philox.normal(uint64_t(2 * i + 1)) / kSamples;
  }
  EXPECT_NEAR(product, 0.0, kSigmas * std::sqrt(1.0 / kSamples));
}

TEST(Philox, BelowReachesEveryValueEvenly) {
  const Philox philox{.seed = 11, .stream = streams::kShuffle};
  constexpr uint64_t kSides = 7;
  std::vector<int> count(kSides);
  for (int i = 0; i < kSamples; ++i) {
    const uint64_t x = philox.below(kSides, uint64_t(i));
    ASSERT_LT(x, kSides);
    ++count[x];
  }
  const double p = 1.0 / kSides;
  for (const int n : count) {
    EXPECT_NEAR(n, kSamples * p, kSigmas * std::sqrt(kSamples * p * (1 - p)));
  }
  EXPECT_EQ(philox.below(1, 0), 0u);
  EXPECT_LT(philox.below(~uint64_t{0}, 0), ~uint64_t{0});
}

}  // namespace
}  // namespace ridgeline
