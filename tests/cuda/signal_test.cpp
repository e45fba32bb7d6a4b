// Rows over signals as rows of channels against the oracle, apart from the walk over all rows: it
// takes long over as many channels as they are built for.
#include <gtest/gtest.h>

#include "ridgeline/cuda/conv1d/rows.h"
#include "ridgeline/cuda/plain/rows.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/signal_cases.h"
#include "tests/support/nans.h"

namespace ridgeline::test {
namespace {

Table inference_and_training_rows() {
  Table table = cuda::signal_chain_rows();
  for (const auto family : {cuda::signal_rows, cuda::signal_training_rows}) {
    for (Impl& row : family()) table.push_back(std::move(row));
  }
  return table;
}

class CudaSignalWalk : public GpuTest {
 protected:
  void walk_signals(Precision precision, const std::vector<const char*>& rows) {
    Table table = inference_and_training_rows();
    Exercised exercised;
    for (Case& c : signal_cases(storage(precision))) {
      c.program.precision = precision;
      if (wanted(c)) walk(c, table, gpu(), exercised);
    }
    if (!all_wanted()) return;
    const bool hopper = gpu().architecture() == 90;
    for (const char* row : rows) {
      if (!hopper && std::string(row).ends_with(".wgmma")) continue;
      EXPECT_GT(exercised[row], 0) << row << ": no case exercises this row";
    }
  }
};

const std::vector<const char*> kHalf{"cuda.one_hot_norm_relu_pool.gather",
                                     "cuda.conv1d.wgmma",
                                     "cuda.norm_relu_pool.rows",
                                     "cuda.conv1d_grad_x.tensor",
                                     "cuda.conv1d_grad_w.tensor",
                                     "cuda.relu_pool.threes",
                                     "cuda.pool_relu_grad.threes",
                                     "cuda.one_hot_conv1d_grad_w.tensor",
                                     "cuda.conv1d_chain_norm_relu_pool.wgmma"};

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
  Table table = cuda::plain_pool_rows();
  for (Impl& row : cuda::norm_rows()) table.push_back(std::move(row));
  for (Impl& row : cuda::plain_text_rows()) table.push_back(std::move(row));
  for (Impl& row : cuda::plain_loss_rows()) table.push_back(std::move(row));
  for (const DType dtype : kFloats) {
    Exercised exercised;
    for (const Case& c : text_op_cases(dtype)) walk(c, table, gpu(), exercised);
    // One block a row; clusters of blocks with whole parts and a shorter last one.
    const int64_t run = 16 / int64_t(size_of(dtype));
    walk(norm_and_gradient(3, 8209, true, false, dtype), table, gpu(), exercised);
    walk(norm_and_gradient(5, 16384, true, true, dtype), table, gpu(), exercised);
    walk(norm_and_gradient(2, 16384 + 3 * run, true, false, dtype), table, gpu(), exercised);
    walk(norm_and_gradient(1, 16384 + 5 * run, false, false, dtype), table, gpu(), exercised);
    for (const char* row :
         {"cuda.argmax.plain", "cuda.one_hot_conv1d.plain", "cuda.one_hot_conv1d_grad_w.plain",
          "cuda.layer_norm.plain", "cuda.layer_norm_grad.plain", "cuda.layer_norm.cluster",
          "cuda.layer_norm_grad.cluster"}) {
      if (std::string(row).ends_with(".cluster") && gpu().architecture() < 90) continue;
      EXPECT_GT(exercised[row], 0) << row << ": no case exercises this row";
    }
  }
}

// A NaN among the inputs is one in every output that depends on it, through relu and pools.
TEST_F(CudaSignalWalk, NansComeThrough) {
  Table table = inference_and_training_rows();
  Exercised exercised;
  for (const Precision precision :
       {Precision::bf16, Precision::fp16, Precision::tf32, Precision::fp32}) {
    for (Case& c : signal_cases(storage(precision))) {
      c.program.precision = precision;
      if (!std::holds_alternative<MaxPool>(c.program.ops.back())) continue;  // forward passes
      expect_nans(c, table, gpu(), exercised);
    }
  }
  for (const char* row : {"cuda.one_hot_norm_relu_pool.gather", "cuda.norm_relu_pool.rows",
                          "cuda.conv1d.fp32", "cuda.conv1d_chain_norm_relu_pool.wgmma"}) {
    if (gpu().architecture() != 90 && std::string(row).ends_with(".wgmma")) continue;
    EXPECT_GT(exercised[row], 0) << row << ": no case exercises this row";
  }
}

}  // namespace
}  // namespace ridgeline::test
