#include "ridgeline/engine/ladder/ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/engine/small_ladder.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

Ladder small_ladder() {
  Ladder ladder = testing::ladder_without_rungs();
  ladder.cpu = {
      {.name = "loop", .what = "plain", .kernels = {"*.reference"}, .batch = 1, .threads = 1},
      {.name = "none", .what = "no such kernels", .kernels = {"cpu.no-such-kernel"}},
      {.name = "all", .what = "everything", .kernels = {}, .founding_us = 12.5}};
  return ladder;
}

LadderOptions quick() {
  LadderOptions options;
  options.run.device = "cpu";
  options.run.tune = false;
  options.seconds = 0.01;
  return options;
}

TEST(Ladder, ARungItLacksIsRefusedWithThoseItHas) {
  LadderOptions options = quick();
  options.rung = "nosuch";
  try {
    climb(small_ladder(), options);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr(small_ladder().cpu.front().name));
  }
}

TEST(Ladder, KernelsAreTakenAwayFromEachRungAndNoneAdded) {
  const TempFolder folder;
  LadderOptions options = quick();
  options.rung = "all";
  options.run.kernels = {"!cpu.mlp_train"};
  const LadderResult result = climb(small_ladder(), options);
  ASSERT_EQ(result.rungs.size(), 1u);
  EXPECT_GT(result.rungs[0].kernels.size(), 1u);
  for (const std::string& kernel : result.rungs[0].kernels)
    EXPECT_FALSE(kernel.starts_with("cpu.mlp_train"));
  options.run.kernels = {"!cpu.mlp_train", "cpu.*.simd"};
  try {
    climb(small_ladder(), options);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("--kernels cpu.*.simd"));
  }
}

TEST(Ladder, EachRungIsCheckedTimedAndCompared) {
  const TempFolder folder;
  const LadderResult result = climb(small_ladder(), quick());
  ASSERT_EQ(result.rungs.size(), 3u);
  const RungResult &loop = result.rungs[0], &none = result.rungs[1], &all = result.rungs[2];
  EXPECT_EQ(loop.batch, 1);
  EXPECT_EQ(all.batch, 8);
  for (const std::string& kernel : loop.kernels)
    EXPECT_TRUE(kernel.ends_with(".reference")) << kernel;
  EXPECT_THAT(none.skipped,
              HasSubstr("'cpu.no-such-kernel': no kernel of this build has such a name"));
  for (const RungResult* rung : {&loop, &all}) {
    EXPECT_GT(rung->us_per_input, 0);
    EXPECT_LE(rung->error, rung->bound);
    EXPECT_LT(rung->bound, 1e-3);  // a sample lost of a batch of 8 would err by 0.1
  }
  EXPECT_DOUBLE_EQ(loop.gain, 1);
  EXPECT_DOUBLE_EQ(all.gain, loop.us_per_input / all.us_per_input);  // over the last that ran
  const auto json = nlohmann::json::parse(to_json_text(result));
  EXPECT_EQ(json["rungs"].size(), 3u);
  EXPECT_TRUE(json["rungs"][1].contains("skipped"));
  EXPECT_THAT(to_line(all), HasSubstr("founding record: 12.5 us"));
  const std::string svg = to_svg(result);
  EXPECT_THAT(svg, HasSubstr("founding record"));
  EXPECT_THAT(svg, HasSubstr(">loop<"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(Ladder, ARungIsCalledByWhatItDid) {
  const TempFolder folder;
  Ladder ladder = small_ladder();
  ladder.cpu = {{.name = "fast",
                 .what = "without loops",
                 .kernels = {"*.reference"},
                 .without = "cpu.linear.reference",
                 .otherwise = "loops, for want of others"},
                {.name = "all",
                 .what = "without loops",
                 .kernels = {},
                 .without = "cpu.linear.reference",
                 .otherwise = "loops, for want of others"}};
  const LadderResult result = climb(ladder, quick());
  ASSERT_EQ(result.rungs.size(), 2u);
  EXPECT_EQ(result.rungs[0].what, "loops, for want of others");
  EXPECT_EQ(result.rungs[1].what, "without loops");
}

TEST(Ladder, UnknownNamesAreRefusedWithTheKnownOnes) {
  EXPECT_EQ(find_ladder("mlp").name, "mlp");
  try {
    find_ladder("mpl");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("mlp"));
  }
}

TEST(Ladder, EveryNetworkIsAGoodConfig) {
  for (const Ladder& ladder : ladders()) {
    const Config config = parse_config("[data]\nname = \"random\"\n" + ladder.network, ladder.name);
    const nn::Model model = config.build_model(ladder.sample);
    EXPECT_EQ(model.output().numel(), ladder.classes) << ladder.name;
    EXPECT_FALSE(ladder.cpu.empty());
  }
}

TEST(Ladder, ForwardRungsAreHeldToTheReferencesLogits) {
  const TempFolder folder;
  Ladder ladder = small_ladder();
  ladder.forward = true;
  const LadderResult result = climb(ladder, quick());
  ASSERT_EQ(result.rungs.size(), 3u);
  for (const size_t i : {0u, 2u}) {
    const RungResult& rung = result.rungs[i];
    EXPECT_EQ(rung.skipped, "");
    EXPECT_GT(rung.us_per_input, 0);
    EXPECT_LE(rung.error, rung.bound);
    EXPECT_LT(rung.bound, 1e-5);  // one of 25 inputs lost would err by a fifth
  }
  EXPECT_GT(result.rungs[2].error, 0);  // it did compute in fp32, and something else than loops
}

TEST(Ladder, RungsOfRanksAreClimbedElsewhere) {
  const TempFolder folder;
  Ladder ladder = small_ladder();
  ladder.cpu = {{.name = "one", .what = "one process", .kernels = {}},
                {.name = "ranks", .what = "several", .kernels = {}, .ranks = true}};
  LadderOptions options = quick();
  options.rank_count = 3;
  options.launch = [&](const Rung& rung, int ranks) {
    RungResult there;
    there.name = rung.name;
    there.ranks = ranks;
    there.batch = 8;
    there.us_per_input = 0.5;
    there.kernels = {"cpu.a.b"};
    return to_json_text({"small", "cpu", "there", {there}});
  };
  const LadderResult result = climb(ladder, options);
  ASSERT_EQ(result.rungs.size(), 2u);
  EXPECT_EQ(result.rungs[0].ranks, 1);
  EXPECT_EQ(result.rungs[1].ranks, 3);
  EXPECT_EQ(result.rungs[1].kernels, std::vector<std::string>{"cpu.a.b"});
  EXPECT_DOUBLE_EQ(result.rungs[1].gain, result.rungs[0].us_per_input / 0.5);
  options.launch = [](const Rung&, int) { return std::string("{"); };
  EXPECT_THROW(climb(ladder, options), Error);
  options.launch = nullptr;
  EXPECT_THAT(climb(ladder, options).rungs[1].skipped, HasSubstr("--ranks 2"));
  // If ranks cannot be started, the rungs measured until then are kept.
  options.launch = [](const Rung&, int) -> std::string {
    throw_error(ErrorKind::comm, "mpirun ended with 7");
  };
  const LadderResult without = climb(ladder, options);
  EXPECT_GT(without.rungs[0].us_per_input, 0);
  EXPECT_THAT(without.rungs[1].skipped, HasSubstr("mpirun ended with 7"));
}

TEST(Ladder, AnswersMayGoBackToTheHost) {
  const TempFolder folder;
  Ladder ladder = small_ladder();
  ladder.forward = true;
  ladder.cpu = {{.name = "host", .what = "from the host", .kernels = {}, .from_host = true}};
  const LadderResult result = climb(ladder, quick());
  EXPECT_EQ(result.rungs[0].skipped, "");
  EXPECT_GT(result.rungs[0].us_per_input, 0);
}

}  // namespace
}  // namespace ridgeline::engine
