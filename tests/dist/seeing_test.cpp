// Profiles and ladders over ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridgeline/engine/bench/deepbench.h"
#include "ridgeline/engine/ladder/ladder.h"
#include "ridgeline/engine/profile/profile.h"
#include "tests/dist/thread_ranks.h"
#include "tests/engine/small_ladder.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using dist::RankCommunicator;
using dist::testing::on_ranks;
using testing::small_config;
using testing::small_set;
using testing::TempFolder;

TEST(ProfileOfRanks, HasTheNetworkAmongItsRoofs) {
  const TempFolder folder;
  Profile profile;
  on_ranks(3, [&](RankCommunicator& ranks) {
    ProfileOptions options;
    options.set = small_set(203);
    options.seconds = 0.1;
    options.ranks = &ranks;
    // Kernels of single ops, so that the sums have a kernel of their own.
    Config config = small_config({"run.threads=1", "run.tune=false"});
    config.run.kernels = {"!cpu.mlp_gradients_all_reduce"};
    Profile mine = profile_training(config, "small.toml", options);
    if (ranks.is_root()) profile = std::move(mine);
  });
  ASSERT_TRUE(profile.ranks);
  EXPECT_EQ(profile.ranks->count, 3);
  EXPECT_GT(profile.ranks->network.bandwidth, 0);
  EXPECT_GT(profile.ranks->predicted, 0);
  double sent = 0;
  for (const KernelProfile& kernel : profile.kernels) {
    sent += kernel.work.network_bytes;
    if (kernel.work.network_bytes > 0) {
      EXPECT_GT(kernel.roofs.of(prof::Roof::network), 0) << kernel.name;
    }
  }
  EXPECT_GT(sent, 0);
  EXPECT_DOUBLE_EQ(sent, profile.ranks->bytes);
  EXPECT_THAT(to_text(profile), ::testing::HasSubstr("ranks       3: "));
  EXPECT_THAT(to_json_text(profile), ::testing::HasSubstr("waited_us"));
}

TEST(DeepbenchOfRanks, TimesSums) {
  std::vector<DeepbenchLine> lines;
  on_ranks(2, [&](RankCommunicator& ranks) {
    DeepbenchOptions options;
    options.seconds = 0;
    options.take = 1000;
    options.ranks = &ranks;
    options.parts = {"gemm"};  // the others would wait at full speed beside it
    EXPECT_THROW(bench_deepbench(options), Error);
    options.parts.clear();
    const auto mine = bench_deepbench(options);
    if (ranks.is_root()) lines = mine;
  });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].shape, "count=100000 ranks=2");
  EXPECT_NEAR(lines[0].rate * 1e-6 * lines[0].us, 400'000, 1);
}

TEST(LadderOfRanks, IsHeldToTheReferenceToo) {
  const TempFolder folder;
  Ladder ladder = testing::ladder_without_rungs();
  ladder.cpu = {{.name = "alone", .what = "one", .kernels = {}},
                {.name = "ranks", .what = "three", .kernels = {}, .threads = 1, .ranks = true}};
  for (const bool forward : {false, true}) {
    ladder.forward = forward;
    RungResult rung;
    on_ranks(3, [&](RankCommunicator& ranks) {
      LadderOptions options;
      options.run.device = "cpu";
      options.run.tune = false;
      options.seconds = 0.01;
      options.ranks = &ranks;
      options.rung = "ranks";
      const LadderResult result = climb(ladder, options);
      ASSERT_EQ(result.rungs.size(), 1u);
      if (ranks.is_root()) rung = result.rungs.front();
    });
    EXPECT_EQ(rung.skipped, "");
    EXPECT_EQ(rung.ranks, 3);
    EXPECT_EQ(rung.batch, 8);
    EXPECT_GT(rung.us_per_input, 0);
    EXPECT_LE(rung.error, rung.bound);
    EXPECT_LT(rung.bound, 1e-3);  // a sample lost of a batch of 8 would err by 0.1
  }
}

}  // namespace
}  // namespace ridgeline::engine
