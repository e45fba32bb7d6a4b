// Values after a sample's last timestep never enter a result, with any kernel of the CPU.
#include <gtest/gtest.h>

#include "ridgeline/cpu/simd/split_kernels.h"
#include "ridgeline/registry.h"
#include "tests/support/padding.h"

namespace ridgeline::test {
namespace {

TEST(RecurrentKernels, PaddingNeverEntersAResult) {
  const auto runtime = make_runtime(Device{}, 2);
  const KernelTable table = all_kernels();
  Exercised exercised;
  for (const DType dtype : {DType::fp32, DType::fp64}) {
    for (const auto& cases : {recurrent_op_cases, recurrent_cases}) {
      for (const Case& c : cases(dtype)) {
        if (has_padding(c)) expect_no_padding(c, table, *runtime, exercised);
      }
    }
  }
  for (const char* kernel : {"cpu.rnn_grad_w.simd", "cpu.rnn_grad_w.reference", "cpu.rnn.simd",
                             "cpu.rnn.batch_parallel", "cpu.rnn_grads.batch_parallel"}) {
    EXPECT_GT(exercised[kernel], 0) << kernel;
  }
}

TEST(RecurrentKernels, PaddingNeverEntersAResultOfSplitProducts) {
  const auto runtime = make_runtime(Device{}, 2);
  KernelTable table = all_kernels();
  std::erase_if(table, [&](const Kernel& kernel) { return bool(kernel.covers); });
  const KernelTable kernels = cpu::simd::split_kernels(cpu::simd::split_portable_engine());
  table.insert(table.end(), kernels.begin(), kernels.end());
  Exercised exercised;
  for (const Case& c : recurrent_cases(DType::fp32)) {
    if (has_padding(c)) expect_no_padding(c, table, *runtime, exercised);
  }
  EXPECT_FALSE(exercised.empty());
}

}  // namespace
}  // namespace ridgeline::test
