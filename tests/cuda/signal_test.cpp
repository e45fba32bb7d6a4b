// Rows over signals as rows of channels against the oracle, apart from the walk over all rows: it
// takes long over as many channels as they are built for.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ridgeline::test
