#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ridgeline/engine/bench/rnn.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

RnnBenchOptions small() {
  RnnBenchOptions options;
  options.cells = {CellKind::gru};
  options.hidden = {6};
  options.batch = {3};
  options.steps = 4;
  options.seconds = 0;
  options.run.device = "cpu";
  options.run.threads = 1;
  return options;
}

TEST(BenchRnn, TimesEveryKernelBothWays) {
  const auto lines = bench_rnn(small());
  ASSERT_GE(lines.size(), 2u);
  for (const RnnBenchLine& line : lines) {
    EXPECT_GT(line.min_us, 0) << line.kernel;
    EXPECT_LE(line.min_us, line.median_us) << line.kernel;
    EXPECT_EQ(line.kernels.size() > 1, line.training) << line.kernel;
  }
}

TEST(BenchRnn, TimesTheKernelsAskedForAndThePlan) {
  RnnBenchOptions options = small();
  options.kernels = {"simd", "plan"};
  const auto lines = bench_rnn(options);
  ASSERT_EQ(lines.size(), 4u);  // forward and training
  for (size_t i = 0; i < lines.size(); ++i) {
    // The plan considers all kernels, whichever wins here.
    if (i % 2 == 0) {
      EXPECT_TRUE(lines[i].kernel.starts_with("plan: cpu.rnn")) << lines[i].kernel;
    } else {
      EXPECT_EQ(lines[i].kernel, "cpu.rnn.simd");
    }
    EXPECT_EQ(lines[i].training, i >= 2);
  }
}

using Plans = std::set<std::vector<std::string>>;

// The plans that a bench leaves to later runs, in a separate cache.
Plans plans_left(const RnnBenchOptions& options, std::vector<RnnBenchLine>& lines) {
  const testing::TempFolder folder;
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string usual = before == nullptr ? "" : before;
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  lines = bench_rnn(options);
  Plans plans;
  std::ifstream file(cache_folder() / "tuning.json");
  const auto kept = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (kept.is_object()) {
    for (const auto& environment : kept.at("environments")) {
      if (!environment.contains("plans")) continue;
      for (const auto& plan : environment["plans"]) plans.insert(plan.at("kernels"));
    }
  }
  setenv("XDG_CACHE_HOME", usual.c_str(), 1);
  return plans;
}

TEST(BenchRnn, LeavesOtherRunsThePlannersPlansAlone) {
  RnnBenchOptions options = small();
  options.seconds = PlanOptions{}.seconds_per_kernel;
  std::vector<RnnBenchLine> lines;
  options.kernels = {"simd"};
  EXPECT_EQ(plans_left(options, lines), Plans{});
  options.kernels = {"plan", "simd"};
  const Plans plans = plans_left(options, lines);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(plans, (Plans{lines[0].kernels, lines[2].kernels}));
  options.seconds /= 2;  // measured more hastily than a run would
  EXPECT_EQ(plans_left(options, lines), Plans{});
  EXPECT_EQ(lines.size(), 4u);
}

TEST(BenchRnn, SaysWhenNoKernelIsLeft) {
  RnnBenchOptions options = small();
  options.kernels = {"nosuch"};
  EXPECT_THROW(bench_rnn(options), Error);
}

}  // namespace
}  // namespace ridgeline::engine
