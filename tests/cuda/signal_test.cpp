// Rows over signals as rows of channels against the oracle, apart from the walk over all rows: it
// takes long over as many channels as they are built for.
#include <gtest/gtest.h>

#include "ridgeline/cuda/plain/rows.h"
#include "ridgeline/cuda/signal_rows.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/signal_cases.h"
#include "tests/support/walk.h"

namespace ridgeline::test {
namespace {

class CudaSignalWalk : public GpuTest {
 protected:
  void walk_signals(Precision precision, const std::vector<const char*>& rows) {
    const Table table = cuda::signal_rows();
    Exercised exercised;
    for (Case& c : signal_cases(storage(precision))) {
      c.program.precision = precision;
      walk(c, table, gpu(), exercised);
    }
    const bool hopper = gpu().architecture() == 90;
    for (const char* row : rows) {
      if (!hopper && std::string(row).ends_with(".wgmma")) continue;
      EXPECT_GT(exercised[row], 0) << row << ": no case exercises this row";
    }
  }
};

const std::vector<const char*> kHalf{"cuda.one_hot_norm_relu_pool.gather", "cuda.conv1d.wgmma",
                                     "cuda.norm_relu_pool.rows", "cuda.conv1d_grad_x.tensor",
                                     "cuda.conv1d_grad_w.tensor"};

TEST_F(CudaSignalWalk, Bf16RowsAgreeWithTheOracle) { walk_signals(Precision::bf16, kHalf); }
TEST_F(CudaSignalWalk, Fp16RowsAgreeWithTheOracle) { walk_signals(Precision::fp16, kHalf); }
TEST_F(CudaSignalWalk, Tf32RowsAgreeWithTheOracle) {
  walk_signals(Precision::tf32, {"cuda.conv1d.wgmma", "cuda.conv1d.fp32"});
}
TEST_F(CudaSignalWalk, Fp32RowsAgreeWithTheOracle) {
  walk_signals(Precision::fp32, {"cuda.one_hot_norm_relu_pool.gather", "cuda.conv1d.fp32",
                                 "cuda.norm_relu_pool.rows"});
}

// Rows of so many numbers that the plain kernels take a large block for each, and texts.
TEST_F(CudaSignalWalk, PlainRowsOfTextsAgreeWithTheOracle) {
  Table table = cuda::plain_image_rows();
  for (Impl& row : cuda::plain_text_rows()) table.push_back(std::move(row));
  for (const DType dtype : kFloats) {
    Exercised exercised;
    for (const Case& c : text_op_cases(dtype)) walk(c, table, gpu(), exercised);
    CaseBuilder c("layer_norm of a wide row", dtype);
    const int64_t rows = 3, width = 8209;
    LayerNorm norm;
    norm.x = c.in("x", {rows, width});
    norm.gamma = c.param("gamma", {width}, uniform(0.5, 1.5));
    norm.beta = c.param("beta", {width});
    norm.y = c.out("y", {rows, width});
    norm.mean = c.wide("mean", {rows}, Role::output);
    norm.rstd = c.wide("rstd", {rows}, Role::output);
    norm.width = width;
    c.add(norm);
    LayerNormGrad grad;
    grad.x = norm.x;
    grad.gamma = norm.gamma;
    grad.mean = norm.mean;
    grad.rstd = norm.rstd;
    grad.dy = c.in("dy", {rows, width});
    grad.dx = c.out("dx", {rows, width});
    grad.dgamma = c.out("dgamma", {width});
    grad.dbeta = c.out("dbeta", {width});
    grad.width = width;
    c.add(grad);
    walk(c.done(), table, gpu(), exercised);
    for (const char* row : {"cuda.one_hot_conv1d.plain", "cuda.one_hot_conv1d_grad_w.plain",
                            "cuda.layer_norm.plain", "cuda.layer_norm_grad.plain"}) {
      EXPECT_GT(exercised[row], 0) << row << ": no case exercises this row";
    }
  }
}

}  // namespace
}  // namespace ridgeline::test
