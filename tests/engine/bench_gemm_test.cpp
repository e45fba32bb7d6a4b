#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ridgeline/engine/bench/compare.h"
#include "ridgeline/engine/bench/deepbench.h"
#include "ridgeline/engine/bench/deepbench_shapes.h"
#include "ridgeline/engine/bench/gemm.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(BenchGemm, EveryOpIsTimedWithEveryKernel) {
  GemmBenchOptions options;
  options.run.device = "cpu";
  options.run.threads = 1;
  options.seconds = 0.001;
  options.shapes = gemm_sweep({GemmOp::tn, GemmOp::nn, GemmOp::nt}, {17}, {3, 8}, {29});
  ASSERT_EQ(options.shapes.size(), 6u);
  size_t heard = 0;
  options.each = [&](const GemmBenchLine&) { ++heard; };
  const auto lines = bench_gemm(options);
  EXPECT_EQ(heard, lines.size());
  for (const GemmShape& shape : options.shapes) {
    EXPECT_TRUE(std::ranges::any_of(
        lines, [&](const GemmBenchLine& line) { return line.shape == shape && !line.vendor; }))
        << name(shape.op) << " n = " << shape.n;
  }
  for (const GemmBenchLine& line : lines) {
    EXPECT_GT(line.us_min, 0);
    EXPECT_LE(line.us_min, line.us);
    EXPECT_DOUBLE_EQ(line.flops_per_second, 2.0 * 17 * 29 * double(line.shape.n) / line.us * 1e6);
    EXPECT_THAT(line.kernel, HasSubstr("." + line.way));
    EXPECT_EQ(line.planned, std::ranges::none_of(lines, [&](const GemmBenchLine& other) {
                return other.shape == line.shape && other.us < line.us;
              }));
  }
  // Readings differ a little, and a comparison sees that.
  EXPECT_TRUE(
      std::ranges::any_of(lines, [](const GemmBenchLine& line) { return line.us_min < line.us; }));
  const auto results = parse_results(gemm_bench_json(lines, options.run));
  ASSERT_EQ(results.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(results[i].us_min, lines[i].us_min);
  EXPECT_EQ(size_t(std::ranges::count(gemm_bench_csv(lines), '\n')), lines.size() + 1);
  EXPECT_THAT(gemm_bench_svg(lines), HasSubstr("NT 17x29 ours"));
}

TEST(BenchGemm, TimesTheKernelsThatAreAskedFor) {
  GemmBenchOptions options;
  options.run.device = "cpu";
  options.run.threads = 1;
  options.run.kernels = {"cpu.*.simd"};
  options.seconds = 0.001;
  options.shapes = gemm_sweep({GemmOp::tn}, {17}, {3}, {29});
  for (const GemmBenchLine& line : bench_gemm(options)) EXPECT_EQ(line.kernel, "cpu.linear.simd");
  options.run.kernels = {"cpu.nothing"};
  EXPECT_THROW(bench_gemm(options), Error);
}

GemmBenchLine line(GemmOp op, int64_t n, bool vendor, double rate) {
  return {{op, 64, n, 32}, vendor ? "library" : "ours", "kernel", vendor, 1, 1, rate, 0, false};
}

TEST(BenchGemm, FindingsNameBatchTranspositionAndLibraries) {
  const std::string text =
      gemm_bench_findings({line(GemmOp::tn, 8, false, 1e12), line(GemmOp::tn, 8, true, 2e12),
                           line(GemmOp::tn, 16, false, 3.9e12), line(GemmOp::tn, 32, false, 4e12),
                           line(GemmOp::nn, 8, false, 3e12), line(GemmOp::nn, 16, false, 3.9e12)});
  EXPECT_THAT(text, HasSubstr("TN 64x32: best at n = 32 (4 TFLOP/s), within 5 % from n = 16 on"));
  EXPECT_THAT(text, HasSubstr("NN for TN): 1.22x on average, at most 1.50x (64x8x32)"));
  EXPECT_THAT(text, HasSubstr("library: 0.50x on average, at least 0.50x (TN 64x8x32)"));
  EXPECT_THAT(text,
              HasSubstr("the faster of both: 1.00x on average; a library's kernel for 1 of 1"));
}

TEST(BenchGemm, FindingsNameMultiplesOf32) {
  // 32 takes the time of 24, 64 a tenth more than 56; 40 follows 32 and is no multiple.
  const std::string text =
      gemm_bench_findings({line(GemmOp::tn, 24, false, 24e9), line(GemmOp::tn, 32, false, 32e9),
                           line(GemmOp::tn, 40, false, 30e9), line(GemmOp::tn, 56, false, 56e9),
                           line(GemmOp::tn, 64, false, 64e9 / 1.21)});
  EXPECT_THAT(text, HasSubstr("TN 64x32: batches of a multiple of 32 have 1.12x the rate of the "
                              "next smaller batch, and take 1.10x its time (2 pairs)"));
  EXPECT_THAT(
      gemm_bench_findings({line(GemmOp::tn, 32, false, 1e9), line(GemmOp::tn, 64, false, 2e9)}),
      Not(HasSubstr("multiple of 32")));
}

TEST(Deepbench, HasThePublishedNumberOfShapes) {
  const auto gemms = deepbench_gemms();
  EXPECT_EQ(gemms.size(), 160u);
  std::set<std::tuple<int, int64_t, int64_t, int64_t>> distinct;
  for (const GemmShape& s : gemms) distinct.insert({int(s.op), s.m, s.n, s.k});
  EXPECT_EQ(distinct.size(), gemms.size());
  EXPECT_EQ(deepbench_rnns().size(), 52u);
  // 94 are published, four of them twice.
  const auto convs = deepbench_convs();
  std::set<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>> different;
  for (const DeepbenchConv& c : convs) different.insert({c.w, c.h, c.c, c.n, c.k, c.kw, c.stride});
  EXPECT_EQ(convs.size(), 90u);
  EXPECT_EQ(different.size(), convs.size());
  EXPECT_EQ(deepbench_all_reduces().size(), 7u);
}

TEST(Deepbench, ConvolutionsAreTimedInAllThreePasses) {
  const testing::TempFolder folder;
  DeepbenchOptions options;
  options.run.device = "cpu";
  options.seconds = 0;
  options.take = 1000;  // only the first
  options.parts = {"conv", "all-reduce"};
  EXPECT_THROW(bench_deepbench(options), Error);  // sums need several ranks
  options.parts = {"conv"};
  const auto lines = bench_deepbench(options);
  std::set<std::string> passes;
  for (const DeepbenchLine& line : lines) {
    passes.insert(line.pass);
    EXPECT_EQ(line.shape, "w=700 h=161 c=1 n=4 k=32 filter=20x5 pad=0 stride=2");
    // 341 x 79 outputs of 32 filters over 100 taps, two operations each, of four images.
    EXPECT_NEAR(line.rate * 1e-6 * line.us, 2.0 * 341 * 79 * 32 * 100 * 4, 1) << line.kernel;
  }
  EXPECT_EQ(passes, (std::set<std::string>{"forward", "grad x", "grad w"}));
  EXPECT_THAT(deepbench_csv(lines), HasSubstr("conv,w=700 h=161"));
}

TEST(Deepbench, LinesOfLayersNameThePlanWhicheverKernelItTook) {
  RnnBenchLine line;
  line.min_us = 2;
  line.median_us = 3;
  std::vector<DeepbenchLine> lines;
  for (const char* kernel : {"plan: cpu.rnn.simd", "plan: cpu.rnn.onednn", "cpu.rnn.onednn"}) {
    line.kernel = kernel;
    lines.push_back(deepbench_line({"rnn-relu", 1760, 16, 50}, line));
  }
  EXPECT_EQ(lines[0].way, "plan");
  EXPECT_FALSE(lines[0].vendor);
  EXPECT_TRUE(lines[1].vendor);
  RunConfig run;
  run.device = "cpu";
  run.threads = 3;
  const auto results = parse_results(deepbench_json(lines, run, 1));
  ASSERT_EQ(results.size(), 3u);
  const std::string layer = "rnn shape cell=rnn-relu hidden=1760 batch=16 steps=50 pass forward ";
  EXPECT_EQ(results[0].name, layer + "way plan precision fp32 threads 3");
  EXPECT_EQ(results[1].name, results[0].name);
  EXPECT_EQ(results[2].name, layer + "way onednn precision fp32 threads 3");
  EXPECT_EQ(results[0].us, 150);
  EXPECT_EQ(results[0].us_min, 100);
}

TEST(Deepbench, FindingsCompareTheBestOfEach) {
  const auto line = [](const char* shape, bool vendor, double us) {
    return DeepbenchLine{"conv", shape, "forward", "a", "b", vendor, us, us, 1, 0};
  };
  EXPECT_EQ(deepbench_findings({line("s", false, 4), line("s", false, 2), line("s", true, 4),
                                line("t", false, 8), line("t", true, 4), line("u", false, 1)}),
            "conv forward: ours is fastest for 1 of 2 shapes, 1.00x the library's speed in the "
            "geometric mean\n");
}

}  // namespace
}  // namespace ridgeline::engine
