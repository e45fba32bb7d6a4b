// Recurrent layers with more hidden units than the table walk's, by every row that takes them.
#include <gtest/gtest.h>

#include "ridgeline/cuda/rows.h"
#include "tests/cuda/gpu.h"
#include "tests/support/walk.h"

namespace ridgeline::test {
namespace {

class CudaRecurrent : public GpuTest {
 protected:
  void walk_wide(Precision precision) {
    Table table = cuda::rows();
    std::erase_if(table, [](const Impl& row) { return row.name.find("rnn") == row.name.npos; });
    Exercised exercised;
    for (Case& c : wide_recurrent_cases(storage(precision))) {
      c.program.precision = precision;
      walk(c, table, gpu(), exercised);
    }
    EXPECT_GT(exercised["cuda.rnn.plain"], 0);
    EXPECT_GT(exercised["cuda.rnn_grad.plain"], 0);
  }
};

TEST_F(CudaRecurrent, Fp64RowsOfWideLayersAgreeWithTheOracle) { walk_wide(Precision::fp64); }
TEST_F(CudaRecurrent, Fp32RowsOfWideLayersAgreeWithTheOracle) { walk_wide(Precision::fp32); }
TEST_F(CudaRecurrent, Bf16RowsOfWideLayersAgreeWithTheOracle) { walk_wide(Precision::bf16); }
TEST_F(CudaRecurrent, Fp16RowsOfWideLayersAgreeWithTheOracle) { walk_wide(Precision::fp16); }

}  // namespace
}  // namespace ridgeline::test
