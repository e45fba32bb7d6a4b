// Every CUDA row against the oracle in double on the CPU, wherever it covers ops of a case.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "ridgeline/cuda/rows.h"
#include "ridgeline/cuda/vendor/cublaslt.h"
#include "ridgeline/cuda/vendor/nccl.h"
#include "ridgeline/dist/self.h"
#include "tests/cuda/gpu.h"
#include "tests/support/walk.h"

namespace ridgeline::test {
namespace {

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
  if (has(".nccl")) return !half && !tf32 && runtime.collectives()->nccl_refusal().empty();
  if (has(".plain_large")) return !half;
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
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    gpu().set_ranks(&alone_);  // one rank, so that its collectives are exercised too
    gpu().connect_ranks();
  }

  void walk_all(Precision precision) {
    const DType dtype = storage(precision);
    const Table table = cuda::rows();
    Exercised exercised;
    for (const Case& c : all_cases(dtype)) walk(c, table, gpu(), exercised);
    for (const Case& c : large_cases(dtype)) walk(c, table, gpu(), exercised);
    expect_all(table, exercised, precision);
  }

  void expect_all(const Table& table, Exercised& exercised, Precision precision) {
    for (const Impl& row : table) {
      if (row.converts || !expected(row.name, precision, gpu())) continue;
      EXPECT_GT(exercised[row.name], 0) << row.name << ": no case exercises this row";
    }
  }

 private:
  static inline dist::SelfCommunicator alone_;
};

TEST_F(CudaTableWalk, Fp64RowsAgreeWithTheOracle) { walk_all(Precision::fp64); }
TEST_F(CudaTableWalk, Fp32RowsAgreeWithTheOracle) { walk_all(Precision::fp32); }
TEST_F(CudaTableWalk, Bf16RowsAgreeWithTheOracle) { walk_all(Precision::bf16); }
TEST_F(CudaTableWalk, Fp16RowsAgreeWithTheOracle) { walk_all(Precision::fp16); }

// The same programs with their products' factors rounded to tf32, by the rows that do.
TEST_F(CudaTableWalk, Tf32RowsAgreeWithTheOracle) {
  Table table = cuda::rows();
  std::erase_if(table, [](const Impl& row) {
    return row.name.find(".cublaslt.") == row.name.npos &&
           row.name.find(".tensor.") == row.name.npos;
  });
  Exercised exercised;
  for (const auto& cases :
       {op_cases(DType::fp32), fused_cases(DType::fp32), large_cases(DType::fp32)}) {
    for (Case c : cases) {
      c.program.precision = Precision::tf32;
      walk(c, table, gpu(), exercised);
    }
  }
  expect_all(table, exercised, Precision::tf32);
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
