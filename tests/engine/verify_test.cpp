#include "ridgeline/engine/verify/verify.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridgeline/dist/self.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using testing::small_config;
using testing::small_set;
using testing::TempFolder;

VerifyOptions options_for(int64_t steps) {
  VerifyOptions options;
  options.set = small_set();
  options.steps = steps;
  return options;
}

TEST(Verify, TheReferenceAgreesInBothPrecisions) {
  const TempFolder folder;
  const Config config = small_config({"train.optimizer={type=\"sgd\",lr=0.05,momentum=0.9}"});
  const VerifyReport report = verify(config, options_for(13));
  EXPECT_TRUE(report.good()) << to_text(report);
  ASSERT_GE(report.comparisons.size(), 2u);
  EXPECT_EQ(report.comparisons[0].precision, Precision::fp64);
  EXPECT_EQ(report.comparisons[0].steps, 13);
  EXPECT_EQ(report.comparisons[0].losses.size(), 13u);
  for (const auto& tensor : report.comparisons[0].tensors) {
    EXPECT_LE(tensor.two_norm, 1e-14) << tensor.name;
  }
  EXPECT_THAT(to_text(report), HasSubstr("0.weight"));
  EXPECT_TRUE(nlohmann::json::parse(to_json_text(report))["good"].get<bool>());
}

// Adam divides gradients by their size, so that elements whose gradient is rounding alone stray
// far: more than the bound, no more than a control's do.
TEST(Verify, TheReferenceAgreesUnderAdam) {
  for (const int64_t steps : {1, 2, 13}) {
    const Config config = small_config({"train.optimizer={type=\"adam\",lr=0.002}"});
    const VerifyReport report = verify(config, options_for(steps));
    EXPECT_TRUE(report.good()) << to_text(report);
  }
}

// Of a run made elsewhere: the same config is the same run, and a batch with one more row is not.
class VerifyElsewhere : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, VerifyElsewhere, ::testing::Values("sgd", "adam"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(VerifyElsewhere, OneMoreRowInABatchFails) {
  const TempFolder folder;
  dist::SelfCommunicator alone;
  const Config config = small_config(
      {"train.clip_norm=0", fmt::format("train.optimizer={{type=\"{}\",lr=0.002}}", GetParam())});
  VerifyOptions options = options_for(5);
  options.ranks = &alone;
  for (const bool same : {true, false}) {
    Config elsewhere = config;
    if (!same) elsewhere.train.batch = config.train.batch + 1;
    write_part(elsewhere, options, folder / "part.safetensors");
    VerifyOptions compare = options;
    compare.part = folder / "part.safetensors";
    compare.part_ranks = 1;
    const VerifyReport report = verify(config, compare);
    EXPECT_EQ(report.good(), same) << to_text(report);
    EXPECT_EQ(report.comparisons.back().what, "1 ranks");
    EXPECT_EQ(report.comparisons.back().verdict, same ? Verdict::pass : Verdict::fail);
  }
}

}  // namespace
}  // namespace ridgeline::engine
