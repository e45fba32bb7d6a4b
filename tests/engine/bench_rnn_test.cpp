#include <gtest/gtest.h>

#include "ridgeline/engine/bench/rnn.h"

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

TEST(BenchRnn, TimesEveryRowBothWays) {
  const auto lines = bench_rnn(small());
  ASSERT_GE(lines.size(), 2u);
  for (const RnnBenchLine& line : lines) {
    EXPECT_GT(line.min_us, 0) << line.row;
    EXPECT_LE(line.min_us, line.median_us) << line.row;
    EXPECT_EQ(line.rows.size() > 1, line.training) << line.row;
  }
}

TEST(BenchRnn, TimesTheRowsAskedForAndThePlan) {
  RnnBenchOptions options = small();
  options.rows = {"simd", "plan"};
  const auto lines = bench_rnn(options);
  ASSERT_EQ(lines.size(), 4u);  // forward and training
  for (size_t i = 0; i < lines.size(); ++i) {
    // The plan is over all rows, whichever wins here.
    if (i % 2 == 0) {
      EXPECT_TRUE(lines[i].row.starts_with("plan: cpu.rnn")) << lines[i].row;
    } else {
      EXPECT_EQ(lines[i].row, "cpu.rnn.simd");
    }
    EXPECT_EQ(lines[i].training, i >= 2);
  }
}

TEST(BenchRnn, SaysWhenNoRowIsLeft) {
  RnnBenchOptions options = small();
  options.rows = {"nosuch"};
  EXPECT_THROW(bench_rnn(options), Error);
}

}  // namespace
}  // namespace ridgeline::engine
