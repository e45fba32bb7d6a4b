#include "ridgeline/data/batches.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "ridgeline/core/philox.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using testing::expect_error;

TEST(EpochOrder, IsAPermutationOfTheSamples) {
  for (const int64_t n : {0, 1, 2, 3, 31, 1000, 1 << 18, (1 << 18) + 1, 300007, 1000000}) {
    std::vector<int32_t> order = epoch_order(n, 5, 2, true);
    ASSERT_EQ(int64_t(order.size()), n);
    std::ranges::sort(order);
    EXPECT_EQ(order, epoch_order(n, 5, 2, false));
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(order[size_t(i)], i);
  }
}

TEST(EpochOrder, DependsOnSeedAndEpochAlone) {
  const auto order = epoch_order(500, 1, 0, true);
  EXPECT_EQ(order, epoch_order(500, 1, 0, true));
  EXPECT_NE(order, epoch_order(500, 1, 1, true));
  EXPECT_NE(order, epoch_order(500, 2, 0, true));
}

// Pins the order: changing it would change resumed runs.
TEST(EpochOrder, StaysWhatItWas) {
  // One number at a time, as the words of the stream are defined.
  for (const int n : {2, 31, 32, 33, 1000}) {
    std::vector<int32_t> one(static_cast<size_t>(n));
    std::iota(one.begin(), one.end(), 0);
    const Philox random{0x123456789abcdef0u, streams::kShuffle + 7};
    for (uint64_t left = one.size(); left > 1; --left) {
      std::swap(one[left - 1], one[random.below(left, left)]);
    }
    EXPECT_EQ(epoch_order(n, random.seed, 7, true), one) << n;
  }
  EXPECT_EQ(epoch_order(8, 1, 0, true), (std::vector<int32_t>{7, 3, 2, 0, 4, 1, 5, 6}));
  EXPECT_EQ(epoch_order(8, 1, 1, true), (std::vector<int32_t>{1, 3, 5, 2, 0, 6, 4, 7}));
  const auto large = epoch_order(1000000, 1, 1, true);
  EXPECT_EQ((std::vector<int32_t>{large[0], large[1], large[999999]}),
            (std::vector<int32_t>{922093, 349435, 205355}));
}

// All 24 orders of four samples occur about equally often over 24000 epochs: each count is binomial
// with mean 1000 and deviation 31; six deviations leave a chance of 5e-8 for a false alarm.
TEST(EpochOrder, IsUniform) {
  std::array<int, 256> counts{};
  for (uint64_t epoch = 0; epoch < 24000; ++epoch) {
    const auto order = epoch_order(4, 9, epoch, true);
    ++counts[size_t(order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3])];
  }
  EXPECT_EQ(std::ranges::count_if(counts, [](int count) { return count > 0; }), 24);
  for (const int count : counts) {
    if (count > 0) {
      EXPECT_NEAR(count, 1000, 6 * 31);
    }
  }
}

// In a set so large that no table is shuffled, the first sample and the one that follows it are
// spread evenly over 4 x 4 parts of the set, and so is a later pair. Each of the 16 counts of 800
// epochs is binomial with mean 50 and deviation 6.8.
TEST(EpochOrder, IsSpreadEvenlyInLargeSets) {
  constexpr int64_t kSamples = 262145;
  std::array<int, 16> first{}, later{};
  std::vector<int32_t> order(kSamples);
  for (uint64_t epoch = 0; epoch < 800; ++epoch) {
    epoch_order(3, epoch, true, order);
    const auto part = [&](size_t at) { return size_t(4 * int64_t{order[at]} / kSamples); };
    ++first[4 * part(0) + part(1)];
    ++later[4 * part(100000) + part(200000)];
  }
  for (const auto& counts : {first, later}) {
    for (const int count : counts) EXPECT_NEAR(count, 50, 6 * 6.8);
  }
}

// Neighbours in the set are not neighbours in its order: a shuffled million has about 2 pairs that
// still follow one another, and moves a sample by a third of the set on average.
TEST(EpochOrder, LeavesNothingOfTheOldOrderInLargeSets) {
  constexpr int64_t kSamples = 1000000;
  const auto order = epoch_order(kSamples, 7, 3, true);
  int64_t pairs = 0;
  double moved = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    moved += std::abs(double(order[i]) - double(i)) / double(kSamples);
    if (i > 0) pairs += std::abs(order[i] - order[i - 1]) == 1;
  }
  EXPECT_LT(pairs, 15);
  EXPECT_NEAR(moved / double(kSamples), 1.0 / 3, 0.002);  // the deviation is 0.0002
}

TEST(EpochOrder, RefusesMoreSamplesThanFit) {
  expect_error(ErrorKind::data, {"3000000000 samples"},
               [] { (void)epoch_order(3000000000, 1, 0, true); });
}

TEST(BatchPlan, KeepsOrDropsTheLastPartialBatch) {
  const BatchPlan keep(10, 4, false), drop(10, 4, true), even(8, 4, false);
  EXPECT_EQ(keep.batches(), 3);
  EXPECT_EQ(keep.size(1), 4);
  EXPECT_EQ(keep.size(2), 2);
  EXPECT_EQ(keep.begin(2), 8);
  EXPECT_EQ(drop.batches(), 2);
  EXPECT_EQ(drop.size(1), 4);
  EXPECT_EQ(even.batches(), 2);  // no empty last batch
  EXPECT_EQ(even.size(1), 4);
  EXPECT_EQ(BatchPlan(3, 8, false).batches(), 1);
  EXPECT_EQ(BatchPlan(3, 8, false).size(0), 3);
  EXPECT_EQ(BatchPlan(1, 1, true).batches(), 1);
}

TEST(BatchPlan, FindsThePositionOfAStep) {
  const BatchPlan plan(10, 4, false);
  EXPECT_EQ(plan.at_step(0), (Position{0, 0}));
  EXPECT_EQ(plan.at_step(2), (Position{0, 2}));
  EXPECT_EQ(plan.at_step(3), (Position{1, 0}));
  EXPECT_EQ(plan.at_step(10), (Position{3, 1}));
}

TEST(BatchPlan, RefusesNonsense) {
  expect_error(ErrorKind::usage, {"batch 0 of 10 samples"}, [] { BatchPlan(10, 0, false); });
  expect_error(ErrorKind::usage, {"batch 4 of 0 samples"}, [] { BatchPlan(0, 4, false); });
  expect_error(ErrorKind::usage, {"batch 11 is larger than the 10 samples", "no batch is left"},
               [] { BatchPlan(10, 11, true); });
}

TEST(Shard, SplitsEvenlyAndCompletely) {
  for (const int64_t size : {0, 1, 5, 7, 64, 65}) {
    for (const int ranks : {1, 2, 3, 8}) {
      int64_t at = 100;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range part = shard(100, size, rank, ranks);
        EXPECT_EQ(part.begin, at);
        EXPECT_GE(part.end - part.begin, size / ranks);
        EXPECT_LE(part.end - part.begin, (size + ranks - 1) / ranks);
        at = part.end;
      }
      EXPECT_EQ(at, 100 + size);
    }
  }
}

}  // namespace
}  // namespace ridgeline::data
