#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ridgeline/core/error.h"
#include "ridgeline/engine/bench/compare.h"
#include "tests/engine/small_set.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

BenchResult result(const std::string& name, double us, double us_min, double fraction = 0) {
  return {name, us, us_min, fraction};
}

TEST(BenchCompare, SlowerOnlyBeyondTheNoise) {
  const auto before = {result("a", 100, 98), result("b", 100, 98), result("c", 100, 98),
                       result("d", 100, 80)};
  const auto after = {result("a", 104, 103), result("b", 107, 106), result("c", 90, 89),
                      result("d", 120, 119)};
  const BenchComparison comparison = compare_results(before, after);
  ASSERT_EQ(comparison.changes.size(), 4u);
  EXPECT_FALSE(comparison.changes[0].slower());  // 4 %: within the least noise
  EXPECT_TRUE(comparison.changes[1].slower());   // 7 %
  EXPECT_TRUE(comparison.changes[2].faster());
  EXPECT_FALSE(comparison.changes[3].slower());  // its own runs differ by 25 %
  EXPECT_TRUE(comparison.slower());
  EXPECT_THAT(to_text(comparison), HasSubstr("SLOWER"));
}

TEST(BenchCompare, TheFractionOfTheLimitDecidesWhereBothStateIt) {
  // The machine and its ceilings are half as fast today: nothing was lost.
  const auto same = compare_results({result("a", 100, 99, 0.8)}, {result("a", 200, 199, 0.8)});
  EXPECT_FALSE(same.slower());
  const auto lost = compare_results({result("a", 100, 99, 0.8)}, {result("a", 100, 99, 0.7)});
  EXPECT_TRUE(lost.slower());
}

TEST(BenchCompare, ALimitThatIsPassedDecidesNothing) {
  const auto before = {result("a", 100, 99, 12.0)};
  EXPECT_FALSE(compare_results(before, {result("a", 98, 97, 0.5)}).slower());
  EXPECT_TRUE(compare_results(before, {result("a", 120, 119, 0.9)}).slower());
}

TEST(BenchCompare, ResultsThatOneSideLacksAreNamed) {
  const auto comparison = compare_results({result("a", 1, 1)}, {result("b", 1, 1)});
  EXPECT_FALSE(comparison.slower());
  EXPECT_THAT(to_text(comparison), HasSubstr("only before"));
  EXPECT_THAT(to_text(comparison), HasSubstr("only after"));
}

TEST(BenchResults, ReadsWhatBenchWritesAndWhatIsKept) {
  const TempFolder folder;
  std::ofstream(folder / "a.json") << R"([{"network":"784-10","batch":32,"us_median":5.0,
    "us_min":4.0,"precision":"fp32","threads":2,"limit_fraction":0.5}])";
  std::ofstream(folder / "b.json") << R"({"cpu":"AMD EPYC 9354","threads":2,"precision":"fp32",
    "rows":[{"network":"784-10","batch":32,"ours_us":5.5,"limit_fraction":0.45}]})";
  const auto a = read_results(folder / "a.json"), b = read_results(folder / "b.json");
  ASSERT_EQ(a.size(), 1u);
  ASSERT_EQ(b.size(), 1u);
  EXPECT_EQ(a[0].name, b[0].name);
  EXPECT_EQ(b[0].us, 5.5);
  EXPECT_EQ(kept_results(folder.path(), "cpu; AMD EPYC 9354; 2 threads", 2).size(), 1u);
  EXPECT_EQ(kept_results(folder.path(), "cpu; AMD EPYC 9354; 4 threads", 4).size(), 0u);
  EXPECT_EQ(kept_results(folder.path(), "cuda; NVIDIA H200", 2).size(), 0u);
  EXPECT_EQ(kept_results(folder / "none", "cpu", 2).size(), 0u);
  std::ofstream(folder / "c.json") << R"({"device":"NVIDIA H200","figures":{"bench":{"mlp-fp32":
    [{"network":"784-10","batch":32,"us_median":7.0,"precision":"fp32"}],"info":{"date":"x"}}}})";
  ASSERT_EQ(kept_results(folder.path(), "cuda; NVIDIA H200", 2).size(), 1u);
  EXPECT_EQ(kept_results(folder.path(), "cuda; NVIDIA H200", 2)[0].us, 7.0);
}

TEST(BenchResults, LinesOfAKeptListNameTheirOwnDevice) {
  const TempFolder folder;
  std::ofstream(folder / "widths.json") << R"([
    {"network":"784-8-10","batch":32,"us_median":6.0,"precision":"fp16","device":"NVIDIA H200"},
    {"network":"784-8-10","batch":32,"us_median":9.0,"precision":"fp16","device":"NVIDIA A100"},
    {"network":"784-8-10","batch":32,"us_median":9.0,"precision":"fp16"}, 7])";
  const auto kept = kept_results(folder.path(), "cuda; NVIDIA H200", 2);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].us, 6.0);
}

TEST(BenchResults, KeptFilesAreOfAMachineByItsWholeModel) {
  const TempFolder folder;
  const auto keep = [&](const char* name, const char* device) {
    std::ofstream(folder / name) << R"({"device":)" << device << R"(,"rows":[{"network":")" << name
                                 << R"(","batch":32,"us_median":5.0}]})";
  };
  // Kinds and numbers of devices, part of a model, no text at all.
  keep("kind.json", R"("cuda")");
  keep("numbered.json", R"("cuda:0")");
  keep("host.json", R"("cpu")");
  keep("part.json", R"("NVIDIA")");
  keep("number.json", "90");
  keep("none.json", R"("")");
  keep("other.json", R"("NVIDIA H200 NVL")");
  for (const char* machine : {"cuda; NVIDIA H200; sm_90; 132 multiprocessors", "cuda; NVIDIA H200",
                              "cpu; AMD EPYC; 90 threads", "cpu", "cuda", ""}) {
    EXPECT_EQ(kept_results(folder.path(), machine, 2).size(), 0u) << machine;
  }
  EXPECT_EQ(kept_results(folder.path(), "cuda; NVIDIA H200 NVL; sm_90", 2).size(), 1u);
}

TEST(BenchResults, OfResultsKeptTwiceTheNewestIsUsed) {
  const TempFolder folder;
  const auto keep = [&](const char* file, const char* network, double us, const char* date) {
    std::ofstream(folder / file) << R"({"device":"NVIDIA H200","date":")" << date
                                 << R"(","rows":[{"network":")" << network
                                 << R"(","batch":32,"us_median":)" << us << "}]}";
  };
  keep("a.json", "dated", 5, "2026-11-15");
  keep("b.json", "dated", 6, "2026-10-01");
  keep("d.json", "named", 8, "2026-11-15");
  keep("c.json", "named", 7, "2026-11-15");
  std::ofstream(folder / "e.json") << R"([
    {"network":"placed","batch":32,"us_median":1.0,"device":"NVIDIA H200"},
    {"network":"placed","batch":32,"us_median":2.0,"device":"NVIDIA H200"}])";
  const auto kept = kept_results(folder.path(), "cuda; NVIDIA H200; sm_90", 2);
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0].us, 5);
  EXPECT_EQ(kept[1].us, 8);
  EXPECT_EQ(kept[2].us, 2);
}

// One line each in the form that gemm, rnn, deepbench and infer write. Files of earlier versions
// call a kernel "row", like the last lines of rnn and deepbench here.
TEST(BenchResults, EveryBenchmarksLinesAreRead) {
  const auto gemm = parse_results(R"([{"op":"TN","m":64,"n":8,"k":32,"way":"simd",
    "kernel":"cpu.linear.simd","us":5.0,"limit_fraction":0.5,"precision":"fp32","threads":2},
    {"op":"TN","m":64,"n":8,"k":32,"way":"onednn","us":6.0}])");
  ASSERT_EQ(gemm.size(), 2u);
  EXPECT_EQ(gemm[0].name, "TN m 64 n 8 k 32 way simd precision fp32 threads 2");
  EXPECT_EQ(gemm[0].us, 5.0);
  EXPECT_EQ(gemm[0].us_min, 5.0);
  EXPECT_EQ(gemm[0].limit_fraction, 0.5);
  EXPECT_NE(gemm[0].name, gemm[1].name);

  const auto rnn = parse_results(R"([{"cell":"lstm","hidden":512,"batch":16,"steps":128,"layers":1,
    "pass":"forward","kernel":"cuda.rnn.persistent","us_min":1.5,"us_median":1.6,"precision":"bf16",
    "threads":16},
    {"cell":"lstm","hidden":512,"batch":16,"steps":128,"layers":1,"pass":"forward",
    "row":"plan: cuda.rnn.persistent","us_min":1.5,"us_median":1.6,"precision":"bf16"}])");
  ASSERT_EQ(rnn.size(), 2u);
  EXPECT_EQ(rnn[0].name,
            "lstm hidden 512 layers 1 steps 128 pass forward kernel cuda.rnn.persistent batch 16 "
            "precision bf16");
  EXPECT_EQ(rnn[1].name,
            "lstm hidden 512 layers 1 steps 128 pass forward kernel plan batch 16 precision bf16");

  const auto deepbench = parse_results(R"({"device":"cuda:0","precision":"bf16","lines":[
    {"part":"conv","shape":"w=7","pass":"grad w","way":"cudnn","kernel":"cuda.conv2d.cudnn","us":9},
    {"part":"rnn","shape":"cell=gru","pass":"forward","way":"persistent",
    "row":"plan: cuda.rnn.persistent","us":9}]})");
  ASSERT_EQ(deepbench.size(), 2u);
  EXPECT_EQ(deepbench[1].name, "rnn shape cell=gru pass forward way plan precision bf16");
  EXPECT_EQ(deepbench[0].name, "conv shape w=7 pass grad w way cudnn precision bf16");
}

TEST(BenchResults, FilesWithoutResultsAreRefused) {
  const TempFolder folder;
  std::ofstream(folder / "bad.json") << "{\"rows\": 3}";
  std::ofstream(folder / "torn.json") << "[{\"network\"";
  for (const char* name : {"bad.json", "torn.json", "missing.json"}) {
    try {
      read_results(folder / name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << name;
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  }
}

}  // namespace
}  // namespace ridgeline::engine
