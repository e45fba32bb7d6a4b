// Every row of the table against the oracle, wherever it covers ops of a case.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/cpu/simd/split_rows.h"
#include "ridgeline/registry.h"
#include "tests/support/conv_cases.h"
#include "tests/support/nans.h"

namespace ridgeline::test {
namespace {

// One thread, two, and more than there are rows of a batch to share out.
class TableWalk : public testing::TestWithParam<int> {};

TEST_P(TableWalk, EveryCpuRowAgreesWithTheOracle) {
  const auto runtime = make_runtime(Device{}, GetParam());
  const Table table = all_rows();
  Exercised exercised;
  for (const DType dtype : kFloats) {
    for (const Case& c : all_cases(dtype)) walk(c, table, *runtime, exercised);
    for (const Case& c : small_signal_cases(dtype)) walk(c, table, *runtime, exercised);
    for (const Case& c : long_conv_cases(dtype)) walk(c, table, *runtime, exercised);
    if (dtype == DType::bf16 || dtype == DType::fp16) continue;
    for (const Case& c : tall_training_cases(dtype)) walk(c, table, *runtime, exercised);
    for (const Case& c : long_recurrent_cases(dtype)) walk(c, table, *runtime, exercised);
  }
  if (!all_wanted()) return;
  for (const Impl& row : table) {
    if (row.target != DeviceKind::cpu || row.converts) continue;
    EXPECT_GT(exercised[row.name], 0) << row.name << ": no case exercises this row";
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, TableWalk, testing::Values(1, 2, 5));

TEST(MlpRows, AWholeStepMayUseAdamAndDropout) {
  const auto runtime = make_runtime(Device{}, 2);
  std::vector<Case> cases = training_cases(DType::fp32);
  for (Case& c : tall_training_cases(DType::fp32)) cases.push_back(std::move(c));
  int taken = 0;
  for (const Case& c : cases) {
    const bool summed = c.name.find("summed") != std::string::npos;
    if (summed || (c.name.find("adam") == c.name.npos && c.name.find("dropout") == c.name.npos)) {
      continue;
    }
    for (const Impl& row : all_rows()) {
      if (row.name != "cpu.mlp_train.simd") continue;
      ++taken;
      const Cover cover = row.covers({c.program, 0, *runtime});
      EXPECT_EQ(cover.ops, c.program.ops.size()) << c.name << ": " << cover.reason;
    }
  }
  EXPECT_GE(taken, 6);
}

// Those of AMX are in no table where the CPU has none: here they are by the portable form of its
// products as well, alone with the conversions they need.
void walk_split_rows(const cpu::simd::SplitEngine& engine) {
  SCOPED_TRACE(engine.name);
  const auto runtime = make_runtime(Device{}, 3);
  Table table = all_rows();
  std::erase_if(table, [&](const Impl& row) { return bool(row.covers); });
  const Table rows = cpu::simd::split_rows(engine);
  table.insert(table.end(), rows.begin(), rows.end());
  Exercised exercised;
  for (const Case& c : recurrent_cases(DType::fp32)) walk(c, table, *runtime, exercised);
  for (const Case& c : recurrent_op_cases(DType::fp32)) walk(c, table, *runtime, exercised);
  for (const Case& c : wide_recurrent_cases(DType::fp32)) walk(c, table, *runtime, exercised);
  for (const Impl& row : rows) {
    EXPECT_GT(exercised[row.name], 0) << row.name << ": no case exercises this row";
  }
}

TEST(SplitRows, AgreeWithTheOracleByThePortableEngine) {
  walk_split_rows(cpu::simd::split_portable_engine());
}

TEST(SplitRows, AgreeWithTheOracleByThisMachines) {
  if (const auto* engine = cpu::simd::split_engine()) return walk_split_rows(*engine);
  for (const Impl& row : all_rows()) EXPECT_FALSE(row.name.ends_with(".amx")) << row.name;
}

// A NaN in an input comes through layers, relu and pools. It does not come through oneDNN's relu,
// which makes a zero of it, nor through its largest of a window.
class NansComeThrough : public testing::Test {
 protected:
  NansComeThrough() {
    std::erase_if(table_, [](const Impl& row) {
      const auto is = [&](const char* what) { return row.name.find(what) != std::string::npos; };
      return is("activation.onednn") || is("max_pool.onednn") || is("rnn.onednn");
    });
  }
  void walk_cases(const std::function<std::vector<Case>(DType)>& cases) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      for (const Case& c : cases(dtype)) expect_nans(c, table_, *runtime_, exercised_);
    }
  }
  void expect_rows(std::initializer_list<const char*> rows) {
    for (const char* row : rows) {
      EXPECT_GT(exercised_[row], 0) << row << ": no case exercises this row";
    }
  }

 private:
  std::unique_ptr<Runtime> runtime_ = make_runtime(Device{}, 2);
  Table table_ = all_rows();
  Exercised exercised_;
};

TEST_F(NansComeThrough, OfSignals) {
  walk_cases(small_signal_cases);
  expect_rows(
      {"cpu.conv1d.toom", "cpu.norm_relu_pool.simd", "cpu.conv1d.bf16", "cpu.norm_relu_pool.bf16"});
}
TEST_F(NansComeThrough, OfLayers) {
  walk_cases(layer_cases);
  expect_rows({"cpu.linear.reference", "cpu.rnn.reference", "cpu.rnn.simd"});
}

TEST_F(NansComeThrough, OfImages) {
  walk_cases(conv_cases);
  expect_rows({"cpu.conv2d.onednn.blocked", "cpu.conv2d_grad_x.onednn.blocked",
               "cpu.conv2d_grad_w.onednn.blocked", "cpu.avg_pool.onednn.blocked",
               "cpu.batch_norm.onednn.blocked", "cpu.layer_norm.onednn", "cpu.max_pool.reference"});
}

TEST(Table, NamesAreUniqueAndSayTheirTarget) {
  std::set<std::string> names;
  for (const Impl& row : all_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " is there twice";
    EXPECT_TRUE(row.name.starts_with(row.target == DeviceKind::cpu ? "cpu." : "cuda."));
  }
}

TEST(Table, EveryOpHasAReferenceRowInEveryFloatType) {
  const auto runtime = make_runtime(Device{}, 1);
  const Table table = all_rows();
  for (const DType dtype : kFloats) {
    std::set<size_t> kinds;
    for (const Case& c : op_cases(dtype)) {
      for (size_t at = 0; at < c.program.ops.size(); ++at) {
        const Op& op = c.program.ops[at];
        kinds.insert(op.index());
        const std::string want = std::string("cpu.") + name(op) + ".reference";
        bool covered = false;
        for (const Impl& row : table) {
          covered |= row.name == want && row.covers({c.program, at, *runtime}).ops == 1;
        }
        EXPECT_TRUE(covered) << want << " does not cover " << c.name;
      }
    }
    EXPECT_EQ(kinds.size(), std::variant_size_v<Op>) << "an op without a case";
  }
}

TEST(Table, ReferencesComeLast) {
  bool reference = false;
  for (const Impl& row : all_rows()) {
    if (row.target != DeviceKind::cpu) continue;
    EXPECT_FALSE(reference && !row.name.ends_with(".reference")) << row.name;
    reference = row.name.ends_with(".reference");
  }
  EXPECT_TRUE(reference);
}

}  // namespace
}  // namespace ridgeline::test
