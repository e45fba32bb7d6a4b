#include "ridgeline/prof/ceilings.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "ridgeline/core/bf16_unit.h"
#include "ridgeline/prof/limit.h"
#include "ridgeline/prof/peak_kernels.h"

namespace ridgeline::prof {
namespace {

namespace fs = std::filesystem;

Ceilings invented() {
  Ceilings ceilings;
  ceilings.fp32_flops = 100e9;
  ceilings.fp64_flops = 50e9;
  ceilings.bandwidths = {{1e6, 80e9}, {256e6, 20e9}};
  ceilings.threads = 2;
  ceilings.machine = "a machine";
  ceilings.date = "2026-01-31";
  return ceilings;
}

class CeilingsFile : public ::testing::Test {
 protected:
  CeilingsFile() {
    std::string pattern = (fs::temp_directory_path() / "ridgeline-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    file_ = folder_ / "ceilings.json";
  }
  ~CeilingsFile() override { fs::remove_all(folder_); }

  fs::path folder_, file_;
};

TEST_F(CeilingsFile, ReadsWhatWasWritten) {
  keep_ceilings(file_, invented());
  const auto read = read_ceilings(file_, "a machine");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->fp32_flops, 100e9);
  EXPECT_EQ(read->bandwidth(5e5), 80e9);
  EXPECT_EQ(read->bandwidth(5e6), 20e9);
  EXPECT_EQ(read->bandwidth(5e9), 20e9);
  EXPECT_EQ(read->date, "2026-01-31");
}

TEST(Ceilings, CountTheUnitForBf16) {
  Ceilings ceilings = invented();
  EXPECT_EQ(ceilings.flops(Precision::bf16), 100e9) << "no such unit";
  ceilings.half_flops = 1200e9;
  EXPECT_EQ(ceilings.flops(Precision::bf16), 1200e9);
  EXPECT_EQ(ceilings.flops(Precision::fp32), 400e9) << "three products of bf16 parts";
  EXPECT_EQ(ceilings.flops(Precision::fp16), 400e9) << "computed in fp32";
  EXPECT_EQ(ceilings.flops(Precision::fp64), 50e9);
  ceilings.half_flops = 200e9;
  EXPECT_EQ(ceilings.flops(Precision::fp32), 100e9) << "plain products are faster";
}

TEST(Ceilings, MeasureTheUnitForBf16WhereThereIsOne) {
  ThreadPool pool(1);
  const Ceilings measured = measure_ceilings(pool, "here");
  if (bf16_unit() == Bf16Unit::none) {
    EXPECT_EQ(measured.half_flops, 0);
  } else {
    EXPECT_GT(measured.half_flops, measured.fp32_flops);
  }
}

TEST_F(CeilingsFile, OtherMachinesAndDamageReadAsAbsent) {
  EXPECT_FALSE(read_ceilings(file_, "a machine"));
  keep_ceilings(file_, invented());
  EXPECT_FALSE(read_ceilings(file_, "another machine"));
  for (const char* text :
       {"", "{", "[]", "{\"version\":99}", "{\"version\":1,\"machine\":\"a machine\"}",
        "{\"version\":1,\"machine\":\"a machine\",\"fp32_flops\":\"x\"}"}) {
    std::ofstream(file_) << text;
    EXPECT_FALSE(read_ceilings(file_, "a machine")) << text;
  }
}

TEST_F(CeilingsFile, MeasuredFiguresAreSaneAndKept) {
  ThreadPool pool(1);
  Ceilings measured = ceilings_of(pool, "here", file_);
  // Another process may have had the processor during one of the two, which is not the
  // measurement's fault.
  const auto vectors = [&] { return measured.fp32_flops > 1.2 * measured.fp64_flops; };
  for (int more = 0; more < 10 && !vectors(); ++more) {
    measured = ceilings_of(pool, "here", file_, /*again=*/true);
  }
  EXPECT_TRUE(vectors()) << measured.fp32_flops << " " << measured.fp64_flops;
  // Bounds for any machine of the last twenty years and the next ten.
  EXPECT_GT(measured.fp32_flops, 1e9);
  EXPECT_LT(measured.fp32_flops, 1e13);
  EXPECT_GT(measured.memory_bandwidth(), 1e8);
  EXPECT_LT(measured.memory_bandwidth(), 1e13);
  for (size_t i = 1; i < measured.bandwidths.size(); ++i) {
    EXPECT_GE(measured.bandwidths[i - 1].rate, measured.bandwidths[i].rate);
  }
  EXPECT_EQ(read_ceilings(file_, "here")->fp32_flops, measured.fp32_flops);
}

TEST_F(CeilingsFile, FiguresOfABusyMachineAreMeasuredAgain) {
  Ceilings slow = invented();
  slow.fp32_flops = slow.fp64_flops = 1e6;
  keep_ceilings(file_, slow);
  ThreadPool pool(1);
  EXPECT_GT(ceilings_of(pool, "a machine", file_).fp32_flops, 1e9);
  EXPECT_GT(read_ceilings(file_, "a machine")->fp32_flops, 1e9);
}

TEST_F(CeilingsFile, RegionsOfABusyMachineAreMeasuredAgain) {
  ThreadPool pool(2);
  Ceilings slow = invented();
  slow.fp32_flops = slow.fp64_flops = 1e15;  // a glance finds nothing too low in these
  slow.region_seconds = 1;
  keep_ceilings(file_, slow);
  EXPECT_LT(ceilings_of(pool, "a machine", file_).region_seconds, 0.5);
}

TEST_F(CeilingsFile, AFolderThatCannotBeWrittenIsNoError) {
  ThreadPool pool(1);
  EXPECT_GT(ceilings_of(pool, "here", "/proc/none/ceilings.json").fp32_flops, 1e9);
}

// 1 us per unit and a constant 5 us; in every second try another process takes 20 ms.
TEST(BestRate, InterruptedTriesNeitherEndTheSearchNorCount) {
  int calls = 0;
  const auto seconds_of = [&](int64_t count) {
    return 1e-6 * double(count) + 5e-6 + (calls++ % 2 == 0 ? 20e-3 : 0);
  };
  EXPECT_NEAR(best_rate(seconds_of, 5, 4e-3, 1).value, 1e6, 0.01e6);
}

// However long tries take, they end when the time is up, and the result is uncertain.
TEST(BestRate, EndsWhenTimeIsUp) {
  for (const double neighbour : {1e-3, 20e-3, 0.5}) {
    double spent = 0;
    const auto seconds_of = [&](int64_t count) {
      const double seconds = 1e-6 * double(count) + neighbour;
      spent += seconds;
      return seconds;
    };
    const Rate rate = best_rate(seconds_of, 600, 2e-4, 0.1);
    EXPECT_LE(spent, 0.1 + neighbour + 1e-6) << neighbour;
    EXPECT_GT(rate.value, 0);
    EXPECT_FALSE(rate.certain) << neighbour;
  }
}

TEST(BestRate, BeginsWithTheCountItIsGiven) {
  int64_t least = 1 << 30;
  const auto seconds_of = [&](int64_t count) {
    least = std::min(least, count);
    return 1e-6 * double(count);
  };
  EXPECT_NEAR(best_rate(seconds_of, 5, 4e-3, 1, 1024).value, 1e6, 1);
  EXPECT_EQ(least, 1024);
}

TEST(BestRate, IsCertainWhenTriesAgree) {
  int calls = 0;
  const auto steady = [&](int64_t count) { return 1e-6 * double(count); };
  EXPECT_TRUE(best_rate(steady, 10, 4e-3, 1).certain);
  // One try in seven is undisturbed: one or two of ten are much better than the others.
  const auto disturbed = [&](int64_t count) {
    return 1e-6 * double(count) * (calls++ % 7 == 3 ? 1 : 2);
  };
  EXPECT_FALSE(best_rate(disturbed, 10, 4e-3, 1).certain);
}

// With or without time left, there is a figure for everything, and nothing waits.
TEST(Ceilings, AreMeasuredInWhateverTimeThereIs) {
  ThreadPool pool(2);
  for (const double seconds : {0.001, 0.05}) {
    const Ceilings ceilings = measure_ceilings(pool, "here", {}, seconds);
    EXPECT_FALSE(ceilings.certain);
    EXPECT_GT(ceilings.fp32_flops, 0);
    EXPECT_GT(ceilings.fp64_flops, 0);
    for (const Bandwidth& bandwidth : ceilings.bandwidths) EXPECT_GT(bandwidth.rate, 0);
  }
}

TEST_F(CeilingsFile, UncertainFiguresAreMeasuredAgainAndNotLost) {
  Ceilings uncertain = invented();
  uncertain.fp32_flops = uncertain.fp64_flops = 1e15;  // a glance finds nothing too low in these
  uncertain.date = "2001-01-01";
  uncertain.certain = false;
  keep_ceilings(file_, uncertain);
  EXPECT_FALSE(read_ceilings(file_, "a machine")->certain);
  ThreadPool pool(1);
  EXPECT_EQ(ceilings_of(pool, "a machine", file_).date, uncertain.date);  // soon after
  fs::last_write_time(file_, fs::last_write_time(file_) - std::chrono::minutes(11));
  const Ceilings now = ceilings_of(pool, "a machine", file_);
  EXPECT_EQ(now.date, today());
  // On a machine that is busy again, the better of the two; otherwise the new measurement.
  EXPECT_EQ(now.fp32_flops == 1e15, !now.certain) << now.fp32_flops;
}

TEST(PeakKernels, CopyCopies) {
  alignas(64) std::byte from[512], to[512] = {};
  for (size_t i = 0; i < sizeof from; ++i) from[i] = std::byte(i * 7 % 251);
  copy_bytes(to, from, sizeof from);
  for (size_t i = 0; i < sizeof from; ++i) ASSERT_EQ(from[i], to[i]) << i;
}

TEST(PeakKernels, FmaConvergesToOneInEachChain) {
  float sink32 = 0;
  double sink64 = 0;
  EXPECT_GT(fma_rounds_fp32(1000, &sink32), 0);
  EXPECT_GT(fma_rounds_fp64(1000, &sink64), 0);
  EXPECT_FLOAT_EQ(sink32, 12);
  EXPECT_DOUBLE_EQ(sink64, 12);
}

TEST(Limit, IsTheSlowerOfTheTwo) {
  const Limit compute = limit_of(1e9, 1e6, Precision::fp32, invented());
  EXPECT_DOUBLE_EQ(compute.seconds(), 0.01);
  EXPECT_STREQ(compute.bound(), "compute");
  EXPECT_DOUBLE_EQ(compute.fraction(0.02), 0.5);
  EXPECT_DOUBLE_EQ(limit_of(1e9, 1e6, Precision::fp64, invented()).seconds(), 0.02);
  const Limit memory = limit_of(1e6, 2e9, Precision::fp32, invented());
  EXPECT_DOUBLE_EQ(memory.seconds(), 0.1);
  EXPECT_STREQ(memory.bound(), "memory");
}

}  // namespace
}  // namespace ridgeline::prof
