// Infinities, large numbers, zeros of both signs and denormal numbers through the GPU's kernels,
// compared with the reference kernels. NaNs are in the table walk.
#include "tests/support/specials.h"

#include <gtest/gtest.h>

#include "ridgeline/registry.h"
#include "tests/cuda/gpu.h"
#include "tests/support/conv_cases.h"
#include "tests/support/nans.h"

namespace ridgeline::test {
namespace {

class CudaSpecials : public GpuTest {
 protected:
  // cuDNN's kernels do not define their results for numbers that are not finite, and relu in some
  // of cuBLASLt's turns a NaN into zero.
  const KernelTable keeping_ = [] {
    KernelTable table = all_kernels();
    std::erase_if(table, [](const Kernel& kernel) {
      return kernel.name.find(".cudnn") != std::string::npos ||
             kernel.name.starts_with("cuda.linear_relu.cublaslt");
    });
    return table;
  }();
  const KernelTable table_ = all_kernels();
  Exercised exercised_;
};

TEST_F(CudaSpecials, SmallNumbersAreNumbersLikeOthers) {
  for (const auto& cases :
       {op_cases(DType::fp32), small_signal_cases(DType::fp32), layer_cases(DType::fp32),
        layer_cases(DType::bf16), layer_cases(DType::fp16)}) {
    for (const Case& c : cases) expect_small(c, table_, gpu(), exercised_);
  }
  EXPECT_GT(exercised_.size(), 40u);
}

TEST_F(CudaSpecials, InfinitiesAndLargeNumbersOfLayers) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const Case& c : layer_cases(dtype)) {
      expect_not_finite(c, keeping_, gpu(), exercised_, Spread::none);
    }
  }
  EXPECT_GT(exercised_.size(), 5u);
}

TEST_F(CudaSpecials, InfinitiesAndLargeNumbersOfOps) {
  for (const Case& c : op_cases(DType::fp32)) {
    expect_not_finite(c, keeping_, gpu(), exercised_, Spread::allowed);
  }
  for (const Case& c : small_signal_cases(DType::fp32)) {
    expect_not_finite(c, keeping_, gpu(), exercised_, Spread::allowed);
  }
  EXPECT_GT(exercised_.size(), 40u);
}

}  // namespace
}  // namespace ridgeline::test
