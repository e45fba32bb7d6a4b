// Every CUDA row against the oracle in double on the CPU, wherever it covers ops of a case.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "ridgeline/cuda/rows.h"
#include "ridgeline/cuda/vendor/cublaslt.h"
#include "tests/cuda/gpu.h"
#include "tests/support/compare.h"

namespace ridgeline::test {
namespace {

using Exercised = std::map<std::string, int64_t>;

// At each op every row that covers ops from there on starts from what the reference rows, in the
// program's own dtypes, have made of the inputs so far.
void walk(const Case& c, const Table& table, Runtime& runtime, Exercised& exercised) {
  SCOPED_TRACE(c.name);
  Arrays arrays = c.inputs();
  Reference reference;
  for (size_t op = 0; op < c.program.ops.size(); ++op) {
    for (const Impl& row : table) {
      const Cover cover = row.covers({c.program, op, runtime});
      if (cover.ops == 0) {
        EXPECT_FALSE(cover.reason.empty()) << row.name << " refuses without a reason";
        continue;
      }
      ++exercised[row.name];
      EXPECT_TRUE(agrees(row, cover, c.program, op, arrays, runtime, table))
          << row.name << " at op " << op << ": " << describe(c.program.ops[op]);
      if (c.steps > 1 && cover.ops == c.program.ops.size()) {
        EXPECT_TRUE(agrees(row, cover, c.program, op, arrays, runtime, table, c.steps))
            << row.name << ", " << c.steps << " steps";
      }
    }
    reference.run(c.program, op, arrays);
  }
}

// Whether the cases in a precision must exercise a row: not where it is for other types, another
// GPU, an absent library, or a proposal that the library need not make.
bool expected(const std::string& row, Precision precision, const cuda::CudaRuntime& runtime) {
  const auto has = [&](const char* part) { return row.find(part) != std::string::npos; };
  const bool half = size_of(storage(precision)) == 2, tf32 = precision == Precision::tf32;
  const bool hopper = runtime.architecture() == 90;
  if (has(".cublaslt.")) {
    const bool fits = !has("linear_relu") || precision == Precision::fp32 || tf32;
    return fits && row.ends_with(".0") && runtime.cublaslt().refusal().empty();
  }
  if (has(".mlp_train.")) return half && hopper;
  if (has(".tensor.")) {
    if (has("linear_relu")) return tf32 && hopper;
    return hopper && (half || (tf32 && !has("grad")));
  }
  if (has(".plain_large")) return !half;
  if (has(".tile.") || has(".mlp_step.") || has(".head_sgd."))
    return !half && runtime.architecture() >= 80;
  return true;
}

// Products larger than a tile in every direction, and long enough for k to be shared out.
std::vector<Case> large_cases(DType dtype) {
  std::vector<Case> all;
  for (const auto& [n, in, out] :
       {std::array{200, 300, 150}, std::array{33, 1100, 70}, std::array{1500, 65, 10}}) {
    const auto title = [&, n = n](const char* op) { return fmt::format("{} of {} rows", op, n); };
    CaseBuilder forward(title("linear+tanh"), dtype);
    const Value x = forward.in("x", {n, in}), w = forward.param("w", {out, in});
    const Value z = forward.temp("z", {n, out});
    forward.add(Linear{x, w, forward.param("b", {out}), z});
    forward.add(Activation{ActivationKind::tanh, z, forward.out("y", {n, out})});
    all.push_back(forward.done());

    CaseBuilder grad_x(title("linear_grad_x"), dtype);
    const Value dy = grad_x.in("dy", {n, out}), wx = grad_x.param("w", {out, in});
    grad_x.add(LinearGradX{dy, wx, grad_x.out("dx", {n, in})});
    all.push_back(grad_x.done());

    CaseBuilder grad_w(title("linear_grad_w+sgd"), dtype);
    const Value xs = grad_w.in("x", {n, in}), dys = grad_w.in("dy", {n, out});
    const Value dw = grad_w.temp("dw", {out, in}), db = grad_w.temp("db", {out});
    grad_w.add(LinearGradW{xs, dys, dw, db});
    grad_w.add_update("momentum", grad_w.param("w", {out, in}), dw);
    grad_w.add_update("momentum", grad_w.param("b", {out}), db);
    all.push_back(grad_w.done());
  }
  return all;
}

class CudaTableWalk : public GpuTest {
 protected:
  void walk_all(Precision precision) {
    const DType dtype = storage(precision);
    const Table table = cuda::rows();
    Exercised exercised;
    for (const Case& c : all_cases(dtype)) walk(c, table, gpu(), exercised);
    for (const Case& c : large_cases(dtype)) walk(c, table, gpu(), exercised);
    for (const Case& c : tall_training_cases(dtype)) walk(c, table, gpu(), exercised);
    expect_all(table, exercised, precision);
  }

  void expect_all(const Table& table, Exercised& exercised, Precision precision) {
    for (const Impl& row : table) {
      if (row.converts || !expected(row.name, precision, gpu())) continue;
      EXPECT_GT(exercised[row.name], 0) << row.name << ": no case exercises this row";
    }
  }
};

TEST_F(CudaTableWalk, Fp64RowsAgreeWithTheOracle) { walk_all(Precision::fp64); }
TEST_F(CudaTableWalk, Fp32RowsAgreeWithTheOracle) { walk_all(Precision::fp32); }
TEST_F(CudaTableWalk, Bf16RowsAgreeWithTheOracle) { walk_all(Precision::bf16); }
TEST_F(CudaTableWalk, Fp16RowsAgreeWithTheOracle) { walk_all(Precision::fp16); }

// The same programs with their products' factors rounded to tf32, or split in two, by the rows that
// do. Whole steps are left to rows that round to nearest: dropping bits pulls sums of one sign
// together, which the bound of a step does not allow for.
class CudaRoundedTableWalk : public CudaTableWalk {
 protected:
  using Names = std::vector<const char*>;

  static Table only(const Names& names) {
    Table table = cuda::rows();
    std::erase_if(table, [&](const Impl& row) {
      return std::none_of(names.begin(), names.end(),
                          [&](const char* name) { return row.name.find(name) != row.name.npos; });
    });
    return table;
  }

  void walk_fp32_as(Precision precision, const Names& vendors, const Names& ours) {
    Names all = vendors;
    all.insert(all.end(), ours.begin(), ours.end());
    const Table table = only(all), table_of_ours = only(ours);
    Exercised exercised;
    const auto walk_cases = [&](std::vector<Case> cases, const Table& rows) {
      for (Case& c : cases) {
        c.program.precision = precision;
        walk(c, rows, gpu(), exercised);
      }
    };
    walk_cases(op_cases(DType::fp32), table);
    walk_cases(fused_cases(DType::fp32), table);
    walk_cases(large_cases(DType::fp32), table);
    walk_cases(training_cases(DType::fp32), table_of_ours);
    walk_cases(tall_training_cases(DType::fp32), table_of_ours);
    expect_all(table, exercised, precision);
  }
};

TEST_F(CudaRoundedTableWalk, Tf32RowsAgreeWithTheOracle) {
  walk_fp32_as(Precision::tf32, {".cublaslt.", ".tensor."}, {".tile.", ".mlp_step.", ".head_sgd."});
}
TEST_F(CudaRoundedTableWalk, Fp32x3RowsAgreeWithTheOracle) {
  walk_fp32_as(Precision::fp32x3, {}, {".tile.", ".mlp_step.", ".head_sgd."});
}

// More rows than one block takes.
TEST_F(CudaTableWalk, LossesOfLargeBatchesAgreeWithTheOracle) {
  const Table table = cuda::rows();
  Exercised exercised;
  for (const auto& [n, classes] :
       {std::array{257, 10}, std::array{3000, 10}, std::array{700, 40}}) {
    CaseBuilder c("softmax_xent of a large batch", DType::fp32);
    const Shape shape{n, classes};
    const Value x = c.in("x", shape, normal(3)), label = c.labels({n}, classes);
    c.add(SoftmaxXent{x, label, c.tick(), c.loss(), c.correct(), 1.0 / n});
    c.add(SoftmaxXentGrad{x, label, c.out("dx", shape), 1.0 / n});
    walk(c.done(), table, gpu(), exercised);
  }
  EXPECT_GT(exercised["cuda.softmax_xent_and_grad.plain"], 0);
}

}  // namespace
}  // namespace ridgeline::test
