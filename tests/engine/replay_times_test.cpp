#include "ridgeline/engine/profile/replay_times.h"

#include <gtest/gtest.h>

namespace ridgeline::engine {
namespace {

LaunchRecord kernel(const char* name, double begin, double end, int blocks = 1) {
  LaunchRecord record;
  record.name = name;
  record.begin = begin;
  record.end = end;
  record.grid[0] = blocks;
  return record;
}

// Three kernels: a product, an activation and the same product again, with its own copy.
std::vector<DeviceTrace> three_kernels() {
  std::vector<DeviceTrace> traces(3);
  traces[0].launches = {kernel("product", 0, 1)};
  traces[1].launches = {kernel("activation", 0, 1)};
  traces[2].launches = {kernel("product", 0, 1)};
  traces[2].copies = {{"on the GPU", 0, 1, 0, 64}};
  return traces;
}

TEST(ReplayTimes, FunctionsBelongToTheKernelsThatLaunchThem) {
  DeviceTrace replay;
  replay.copies = {{"to the GPU", 0, 5, 0, 8}};  // the inputs of a launch: they belong to no kernel
  for (const double at : {10.0, 20.0}) {
    replay.launches.push_back(kernel("product", at, at + 1));
    replay.launches.push_back(kernel("activation", at + 1, at + 1.5));
    replay.launches.push_back(kernel("product", at + 2, at + 4));
    replay.copies.push_back({"on the GPU", at + 4, at + 4.25, 0, 64});
  }
  const auto times = times_in_replay(three_kernels(), replay);
  ASSERT_TRUE(times);
  ASSERT_EQ(times->kernels.size(), 3u);
  for (size_t step = 0; step < 2; ++step) {
    EXPECT_DOUBLE_EQ(times->kernels[0][step], 1);
    EXPECT_DOUBLE_EQ(times->kernels[1][step], 0.5);
    EXPECT_DOUBLE_EQ(times->kernels[2][step], 2.25);
  }
}

TEST(ReplayTimes, ConcurrentFunctionsShareTheTime) {
  DeviceTrace replay;
  // The activation begins before the product has ended, as overlapped launches do: 4 s in all.
  replay.launches = {kernel("product", 0, 2), kernel("activation", 1, 3), kernel("product", 3, 4)};
  const auto times = times_in_replay(three_kernels(), replay);
  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ(times->kernels[0][0], 1.5);
  EXPECT_DOUBLE_EQ(times->kernels[1][0], 1.5);
  EXPECT_DOUBLE_EQ(times->kernels[2][0], 1);
}

TEST(ReplayTimes, ReplaysOfOtherStepsHaveNone) {
  DeviceTrace replay;
  EXPECT_FALSE(times_in_replay(three_kernels(), replay));
  replay.launches = {kernel("product", 0, 1), kernel("activation", 1, 2)};
  EXPECT_FALSE(times_in_replay(three_kernels(), replay));  // a product is missing
  replay.launches.push_back(kernel("product", 2, 3, /*blocks=*/2));
  EXPECT_FALSE(times_in_replay(three_kernels(), replay));  // a different one than was launched
  replay.launches.back().grid[0] = 1;
  EXPECT_TRUE(times_in_replay(three_kernels(), replay));
}

}  // namespace
}  // namespace ridgeline::engine
