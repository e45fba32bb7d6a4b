// Kernels over signals as rows of channels compared with the oracle, separately from the walk over
// all kernels, because it takes long with as many channels as they are built for.
#include <gtest/gtest.h>

#include "ridgeline/cuda/conv1d/kernels.h"
#include "ridgeline/cuda/norm/kernels.h"
#include "ridgeline/cuda/plain/kernels.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/signal_cases.h"
#include "tests/support/nans.h"

namespace ridgeline::test {
namespace {

KernelTable inference_and_training_kernels() {
  KernelTable table = cuda::signal_chain_kernels();
  for (const auto family : {cuda::signal_kernels, cuda::signal_training_kernels}) {
    for (Kernel& kernel : family()) table.push_back(std::move(kernel));
  }
  return table;
}

class CudaSignalWalk : public GpuTest {
 protected:
  void walk_signals(Precision precision) {
    const KernelTable table = inference_and_training_kernels();
    Exercised exercised;
    for (Case& c : signal_cases(storage(precision))) {
      c.program.precision = precision;
      if (wanted(c)) walk(c, table, gpu(), exercised);
    }
    expect_exercised(table, precision, gpu(), exercised);
  }
};

TEST_F(CudaSignalWalk, Bf16KernelsAgreeWithTheOracle) { walk_signals(Precision::bf16); }
TEST_F(CudaSignalWalk, Fp16KernelsAgreeWithTheOracle) { walk_signals(Precision::fp16); }
TEST_F(CudaSignalWalk, Tf32KernelsAgreeWithTheOracle) { walk_signals(Precision::tf32); }
TEST_F(CudaSignalWalk, Fp32KernelsAgreeWithTheOracle) { walk_signals(Precision::fp32); }

// Rows so long that the plain kernels use a large block for each, and texts.
TEST_F(CudaSignalWalk, PlainKernelsOfTextsAgreeWithTheOracle) {
  KernelTable table = cuda::plain_pool_kernels();
  for (Kernel& kernel : cuda::norm_kernels()) table.push_back(std::move(kernel));
  for (Kernel& kernel : cuda::plain_text_kernels()) table.push_back(std::move(kernel));
  for (Kernel& kernel : cuda::plain_loss_kernels()) table.push_back(std::move(kernel));
  for (const DType dtype : kFloats) {
    Exercised exercised;
    for (const Case& c : text_op_cases(dtype)) walk(c, table, gpu(), exercised);
    // One block per row; clusters of blocks with whole parts and a shorter last one.
    const int64_t run = 16 / int64_t(size_of(dtype));
    walk(norm_and_gradient(3, 8209, true, false, dtype), table, gpu(), exercised);
    walk(norm_and_gradient(5, 16384, true, true, dtype), table, gpu(), exercised);
    walk(norm_and_gradient(2, 16384 + 3 * run, true, false, dtype), table, gpu(), exercised);
    walk(norm_and_gradient(1, 16384 + 5 * run, false, false, dtype), table, gpu(), exercised);
    for (const char* kernel :
         {"cuda.argmax.plain", "cuda.one_hot_conv1d.plain", "cuda.one_hot_conv1d_grad_w.plain",
          "cuda.layer_norm.plain", "cuda.layer_norm_grad.plain"}) {
      EXPECT_GT(exercised[kernel], 0) << kernel << ": no case exercises this kernel";
    }
  }
}

// A NaN in the inputs makes every output that depends on it NaN, through relu and pools.
TEST_F(CudaSignalWalk, NansComeThrough) {
  KernelTable table = inference_and_training_kernels();
  Exercised exercised;
  for (const Precision precision :
       {Precision::bf16, Precision::fp16, Precision::tf32, Precision::fp32}) {
    for (Case& c : signal_cases(storage(precision))) {
      c.program.precision = precision;
      if (!std::holds_alternative<MaxPool>(c.program.ops.back())) continue;  // forward passes
      expect_nans(c, table, gpu(), exercised);
    }
  }
  for (const char* kernel :
       {"cuda.one_hot_norm_relu_pool.gather", "cuda.norm_relu_pool.row_wise", "cuda.conv1d.fp32"}) {
    EXPECT_GT(exercised[kernel], 0) << kernel << ": no case exercises this kernel";
  }
}

}  // namespace
}  // namespace ridgeline::test
