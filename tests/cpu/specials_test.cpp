// Infinities, large numbers, zeros of both signs and denormal numbers through the CPU's kernels,
// compared with the reference kernels.
#include "tests/support/specials.h"

#include <gtest/gtest.h>

#include "ridgeline/registry.h"
#include "tests/support/conv_cases.h"
#include "tests/support/nans.h"

namespace ridgeline::test {
namespace {

class Specials : public testing::Test {
 protected:
  std::unique_ptr<Runtime> runtime_ = make_runtime(Device{}, 2);
  const KernelTable table_ = all_kernels();
  // oneDNN's relu turns NaNs (differences of infinities) into zeros, and its max pool skips them.
  const KernelTable keeping_ = [] {
    KernelTable table = all_kernels();
    std::erase_if(table, [](const Kernel& kernel) {
      const auto is = [&](const char* what) { return kernel.name.find(what) != std::string::npos; };
      return is("activation.onednn") || is("max_pool.onednn") || is("rnn.onednn");
    });
    return table;
  }();
  Exercised exercised_;
};

TEST_F(Specials, SmallNumbersAreNumbersLikeOthers) {
  for (const auto& cases : {op_cases(DType::fp32), small_signal_cases(DType::fp32),
                            layer_cases(DType::fp32), layer_cases(DType::bf16)}) {
    for (const Case& c : cases) expect_small(c, table_, *runtime_, exercised_);
  }
  EXPECT_GT(exercised_.size(), 40u);
}

TEST_F(Specials, InfinitiesAndLargeNumbersOfLayers) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const Case& c : layer_cases(dtype)) {
      expect_not_finite(c, keeping_, *runtime_, exercised_, Spread::none);
    }
  }
  EXPECT_GT(exercised_["cpu.linear.reference"], 0);
}

TEST_F(Specials, InfinitiesAndLargeNumbersOfOps) {
  for (const Case& c : op_cases(DType::fp32)) {
    expect_not_finite(c, keeping_, *runtime_, exercised_, Spread::allowed);
  }
  for (const Case& c : small_signal_cases(DType::fp32)) {
    expect_not_finite(c, keeping_, *runtime_, exercised_, Spread::allowed);
  }
  EXPECT_GT(exercised_.size(), 40u);
}

}  // namespace
}  // namespace ridgeline::test
