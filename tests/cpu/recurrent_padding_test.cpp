// What lies behind an item's last step never enters a result: with NaNs there every row gives the
// same numbers as with zeros.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridgeline/cpu/simd/split_rows.h"
#include "ridgeline/registry.h"
#include "tests/support/cases.h"
#include "tests/support/oracle.h"
#include "tests/support/run_row.h"
#include "tests/support/walk.h"

namespace ridgeline::test {
namespace {

// Fills the padding of [B, T, features].
void fill_padding(const Tensor& values, const Tensor& lengths, double with) {
  const int64_t steps = values.shape[1];
  const int64_t features = values.numel() / (values.shape[0] * steps);
  for (int64_t b = 0; b < values.shape[0]; ++b) {
    const int64_t end = (b + 1) * steps * features;
    for (int64_t i = (b * steps + lengths.as<int32_t>()[b]) * features; i < end; ++i) {
      set_element(values, i, with);
    }
  }
}

// Of what the case's recurrent ops are given: inputs, and gradients of outputs.
void fill_all_padding(const Case& c, const Arrays& arrays, double with) {
  for (const Op& op : c.program.ops) {
    if (const auto* rnn = std::get_if<Rnn>(&op))
      fill_padding(arrays[rnn->x], arrays[rnn->lengths], with);
    if (const auto* grad = std::get_if<RnnGrad>(&op)) {
      fill_padding(arrays[grad->dy], arrays[grad->lengths], with);
    }
  }
}

bool is_ragged(const Case& c) {
  const auto* rnn = std::get_if<Rnn>(&c.program.ops.front());
  return rnn != nullptr && rnn->lengths;
}

// Numbers that are alike or both NaN.
bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(
      a, b, [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

void expect_no_padding(const Case& c, const Table& table, Runtime& runtime, Exercised& exercised) {
  SCOPED_TRACE(c.name);
  Arrays clean = c.inputs();
  fill_all_padding(c, clean, 0);
  for (size_t op = 0; op < c.program.ops.size(); ++op) {
    Arrays dirty = clean;
    fill_all_padding(c, dirty, std::numeric_limits<double>::quiet_NaN());
    for (const Impl& row : table) {
      if (row.target != runtime.device().kind || !row.covers) continue;
      const Cover cover = row.covers({c.program, op, runtime});
      if (cover.ops == 0) continue;
      ++exercised[row.name];
      const RowResult want = run_row(row, cover, c.program, op, clean, runtime, table);
      const RowResult got = run_row(row, cover, c.program, op, dirty, runtime, table);
      for (size_t i = op; i < op + cover.ops; ++i) {
        for (const Value& value : writes(c.program.ops[i])) {
          if (!value || std::ranges::count(cover.skips, value.id) > 0) continue;
          EXPECT_TRUE(same(want.arrays.doubles(value.id), got.arrays.doubles(value.id)))
              << row.name << ": " << c.program.info(value.id).name;
        }
      }
    }
    Reference().run(c.program, op, clean);
  }
}

TEST(RecurrentRows, PaddingNeverEntersAResult) {
  const auto runtime = make_runtime(Device{}, 2);
  const Table table = all_rows();
  Exercised exercised;
  for (const DType dtype : {DType::fp32, DType::fp64}) {
    for (const Case& c : recurrent_cases(dtype)) {
      if (is_ragged(c)) expect_no_padding(c, table, *runtime, exercised);
    }
  }
  for (const char* row : {"cpu.rnn_grad_w.simd", "cpu.rnn_grad_w.reference", "cpu.rnn.simd"}) {
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
    if (is_ragged(c)) expect_no_padding(c, table, *runtime, exercised);
  }
  EXPECT_FALSE(exercised.empty());
}

}  // namespace
}  // namespace ridgeline::test
