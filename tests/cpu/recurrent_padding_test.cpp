// What lies behind an item's last step never enters a result, by every row of the CPU.
#include <gtest/gtest.h>

#include "ridgeline/cpu/simd/split_rows.h"
#include "ridgeline/registry.h"
#include "tests/support/padding.h"

namespace ridgeline::test {
namespace {

TEST(RecurrentRows, PaddingNeverEntersAResult) {
  const auto runtime = make_runtime(Device{}, 2);
  const Table table = all_rows();
  Exercised exercised;
  for (const DType dtype : {DType::fp32, DType::fp64}) {
    for (const auto& cases : {recurrent_op_cases, recurrent_cases}) {
      for (const Case& c : cases(dtype)) {
        if (has_padding(c)) expect_no_padding(c, table, *runtime, exercised);
      }
    }
  }
  for (const char* row : {"cpu.rnn_grad_w.simd", "cpu.rnn_grad_w.reference", "cpu.rnn.simd",
                          "cpu.rnn.items", "cpu.rnn_grads.items"}) {
    EXPECT_GT(exercised[row], 0) << row;
  }
}

TEST(RecurrentRows, PaddingNeverEntersAResultOfSplitProducts) {
  const auto runtime = make_runtime(Device{}, 2);
  Table table = all_rows();
  std::erase_if(table, [&](const Impl& row) { return bool(row.covers); });
  const Table rows = cpu::simd::split_rows(cpu::simd::split_portable_engine());
  table.insert(table.end(), rows.begin(), rows.end());
  Exercised exercised;
  for (const Case& c : recurrent_cases(DType::fp32)) {
    if (has_padding(c)) expect_no_padding(c, table, *runtime, exercised);
  }
  EXPECT_FALSE(exercised.empty());
}

}  // namespace
}  // namespace ridgeline::test
