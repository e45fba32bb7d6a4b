#include "ridgeline/data/split.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "ridgeline/data/prepare/windows.h"
#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using namespace testing;
using ::testing::ElementsAre;

void expect_whole(const Split& split, int64_t n) {
  std::vector<int64_t> all = split.train;
  all.insert(all.end(), split.validation.begin(), split.validation.end());
  all.insert(all.end(), split.test.begin(), split.test.end());
  std::ranges::sort(all);
  std::vector<int64_t> want(static_cast<size_t>(n));
  std::iota(want.begin(), want.end(), 0);
  EXPECT_EQ(all, want);
  for (const auto* part : {&split.train, &split.validation, &split.test}) {
    EXPECT_TRUE(std::ranges::is_sorted(*part));
  }
}

TEST(SplitTest, SharesOutEverySampleOnce) {
  for (const int64_t n : {3, 7, 10, 100, 1001}) {
    const Split split = split_samples(n, {.validation = 0.1, .test = 0.2, .seed = 7});
    expect_whole(split, n);
    EXPECT_EQ(int64_t(split.test.size()), std::max<int64_t>(1, (2 * n + 5) / 10)) << n;
    EXPECT_GE(split.validation.size(), 1u);
  }
  EXPECT_EQ(split_samples(5, {}).train.size(), 5u);
}

// The numbers are fixed: a model trained on part of a set must find the other part again.
TEST(SplitTest, IsTheSameEverywhere) {
  const Split split = split_samples(12, {.validation = 0.25, .test = 0.25, .seed = 1});
  const Split again = split_samples(12, {.validation = 0.25, .test = 0.25, .seed = 1});
  EXPECT_EQ(split.test, again.test);
  EXPECT_EQ(split.validation, again.validation);
  const Split other = split_samples(1000, {.test = 0.5, .seed = 2});
  EXPECT_NE(split_samples(1000, {.test = 0.5, .seed = 1}).test, other.test);
  // No order: about half of the first half is in the test part.
  const auto early = std::ranges::count_if(other.test, [](int64_t i) { return i < 500; });
  EXPECT_NEAR(double(early), 250, 60);
}

TEST(SplitTest, StratifiesByClass) {
  std::vector<int32_t> classes;
  for (int i = 0; i < 1000; ++i) classes.push_back(i % 10 == 0 ? 2 : i % 2);
  classes.push_back(3);  // a class of one sample
  const SplitRule rule{.validation = 0.1, .test = 0.2, .seed = 5, .stratify = true};
  const Split split = split_samples(1001, rule, classes);
  expect_whole(split, 1001);
  EXPECT_EQ(split.test.size(), 200u);
  EXPECT_EQ(split.validation.size(), 100u);
  std::map<int32_t, int64_t> test, train;
  for (const int64_t i : split.test) ++test[classes[size_t(i)]];
  for (const int64_t i : split.train) ++train[classes[size_t(i)]];
  EXPECT_NEAR(double(test[2]), 20, 1);
  EXPECT_NEAR(double(test[0]), 80, 1);
  EXPECT_NEAR(double(test[1]), 100, 1);
  EXPECT_EQ(train[3], 1);  // training comes first
}

TEST(SplitTest, KeepsTheOrderOfTime) {
  const Split split = split_samples(10, {.validation = 0.2, .test = 0.3, .in_order = true});
  EXPECT_THAT(split.train, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(split.validation, ElementsAre(5, 6));
  EXPECT_THAT(split.test, ElementsAre(7, 8, 9));
}

TEST(SplitTest, RefusesWhatLeavesNothing) {
  const auto refuse = [](int64_t n, const SplitRule& rule, const std::string& part) {
    expect_error(ErrorKind::usage, {part}, [&] { (void)split_samples(n, rule); });
  };
  refuse(10, {.test = 1}, "below 1");
  refuse(10, {.test = -0.1}, "at least 0");
  refuse(10, {.test = std::nan("")}, "fractions");
  refuse(10, {.validation = 0.5, .test = 0.5}, "nothing for training");
  refuse(2, {.validation = 0.1, .test = 0.1}, "too few");
  refuse(0, {}, "too few");
  refuse(10, {.test = 0.1, .stratify = true}, "target of classes");
  refuse(10, {.test = 0.1, .stratify = true, .in_order = true}, "not both");
}

TEST(WindowTest, LieWithinTheirPartWithTheirTargets) {
  const WindowRule rule{.window = 3, .horizon = 2, .stride = 2};
  EXPECT_THAT(window_starts({0, 10}, rule), ElementsAre(0, 2, 4));
  EXPECT_EQ(target_of(4, rule), 8);
  EXPECT_THAT(window_starts({10, 15}, rule), ElementsAre(10));
  // No timestep, input or target, of one part is seen by another.
  const Split split = split_samples(40, {.validation = 0.25, .test = 0.25, .in_order = true});
  for (const auto* part : {&split.train, &split.validation, &split.test}) {
    const Range range{part->front(), part->back() + 1};
    for (const int64_t start : window_starts(range, rule)) {
      EXPECT_GE(start, range.begin);
      EXPECT_LT(target_of(start, rule), range.end);
    }
  }
  expect_error(ErrorKind::data, {"4 timesteps", "too few"}, [&] {
    (void)window_starts({0, 4}, rule);
  });
  for (const WindowRule& bad : {WindowRule{0, 1, 1}, WindowRule{1, 0, 1}, WindowRule{1, 1, 0}}) {
    expect_error(ErrorKind::usage, {"at least 1"}, [&] { (void)window_starts({0, 4}, bad); });
  }
}

TEST(WindowTest, CopiesTimesteps) {
  const std::vector<float> rows{0, 1, 10, 11, 20, 21, 30, 31};
  std::vector<float> out(8);
  gather_windows<float>(rows, 2, std::vector<int64_t>{0, 2}, {.window = 2}, out);
  EXPECT_THAT(out, ElementsAre(0, 1, 10, 11, 20, 21, 30, 31));
}

}  // namespace
}  // namespace ridgeline::data
