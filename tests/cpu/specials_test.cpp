// Infinities, large numbers, zeros of both signs and denormal numbers through the CPU's kernels,
// compared with the reference kernels.
#include "tests/support/specials.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ridgeline/registry.h"
#include "tests/support/conv_cases.h"
#include "tests/support/nans.h"
#include "tests/support/oracle.h"

namespace ridgeline::test {
namespace {

class Specials : public testing::Test {
 protected:
  void expect_like_reference(const Kernel& kernel, const Case& c, size_t begin, double bound);

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

// How large the numbers of a batch norm are.
struct Sizes {
  double x, gamma, dy;
};

// Batch norm and ReLU, and their gradients.
Case norm_relu(int64_t n, const Image& in, const Sizes& size) {
  CaseBuilder c("batch norm", DType::fp32);
  const Shape shape{n, in.numel()}, channels{in.c};
  const auto made = [&](const char* name, Role role) {
    return c.make(name, DType::fp32, channels, role, uniform(0.5, 2));
  };
  const Value x = c.in("x", shape, normal(size.x)), y = c.temp("y", shape), a = c.out("a", shape);
  const Value gamma = c.param("gamma", channels, normal(size.gamma));
  const Value beta = c.param("beta", channels), d = c.temp("d", shape);
  const Value mean = made("mean", Role::output), rstd = made("rstd", Role::output);
  c.add(
      BatchNorm{x, gamma, beta, made("running_mean", Role::state), made("running_var", Role::state),
                c.make("batches", DType::int64, {1}, Role::state, constant(4)), y, mean, rstd, in});
  c.add(Activation{ActivationKind::relu, y, a});
  c.add(ActivationGrad{ActivationKind::relu, a, c.in("dy", shape, normal(size.dy)), d});
  c.add(BatchNormGrad{x, gamma, mean, rstd, d, c.out("dx", shape), c.out("dgamma", channels),
                      c.out("dbeta", channels), in});
  return c.done();
}

// Expects finite numbers where the reference has them, within `bound` of its largest.
void expect_like(const std::vector<double>& want, const std::vector<double>& has, double bound) {
  double most = 0;
  for (const double each : want) most = std::isfinite(each) ? std::max(most, std::abs(each)) : most;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(want[i])) continue;
    ASSERT_TRUE(std::isfinite(has[i])) << has[i] << " instead of " << want[i];
    ASSERT_NEAR(has[i], want[i], bound * most);
  }
}

// Compares what a kernel writes for the ops from `begin` on with the reference, which has written
// those before.
void Specials::expect_like_reference(const Kernel& kernel, const Case& c, size_t begin,
                                     double bound) {
  const Cover cover = offer(kernel, {c.program, begin, *runtime_});
  ASSERT_GT(cover.ops, 0u);
  Arrays start = c.inputs();
  Reference().run(c.program, 0, begin, start);
  Arrays want = start;
  Reference().run(c.program, begin, begin + cover.ops, want);
  const auto got = run_kernel(kernel, cover, c.program, begin, start, *runtime_, table_);
  for (size_t op = begin; op < begin + cover.ops; ++op) {
    for (const Value& value : writes(c.program.ops[op])) {
      if (!is_float(value.dtype) || std::ranges::count(cover.skips, value.id) > 0) continue;
      expect_like(want.doubles(value.id), got.arrays.doubles(value.id), bound);
    }
  }
}

// The kernels sum in fp32, where squares end at 1e19. Two samples cancel each other's gradients,
// which may be larger than any float before they do.
TEST_F(Specials, BatchNormIsFiniteWhereTheReferenceIs) {
  const std::pair<int64_t, Image> shapes[] = {{2, {17, 1, 1}}, {7, {17, 1, 1}}, {3, {5, 4, 6}}};
  const Sizes sizes[] = {{1, 1, 1}, {1e18, 1, 1}, {1e20, 1, 1e20}, {1e37, 1, 1}, {1, 1e10, 1e30}};
  // Kernels and the op that they begin with.
  const std::pair<const char*, size_t> kernels[] = {{"cpu.batch_norm.simd", 0},
                                                    {"cpu.batch_norm_relu.blocked", 0},
                                                    {"cpu.relu_batch_norm_grad.blocked", 2},
                                                    {"cpu.batch_norm_grad.simd", 3}};
  for (const auto& [name, begin] : kernels) {
    const auto kernel = std::ranges::find(table_, name, &Kernel::name);
    if (kernel == table_.end()) continue;  // a build without oneDNN
    for (const auto& [n, in] : shapes) {
      for (const Sizes& size : sizes) {
        SCOPED_TRACE(fmt::format("{} {} x {}", name, n, size.x));
        const Case c = norm_relu(n, in, size);
        // A few sums of all numbers of a channel; of two samples no more than that is left.
        const double bound = n == 2 ? 2 : 64 * double(n * in.pixels()) * 0x1p-24;
        expect_like_reference(*kernel, c, begin, bound);
      }
    }
  }
}

// The kernels sum in fp32 and begin again in double where that overflows.
TEST_F(Specials, NormsOfSamplesAreFiniteWhereTheReferenceIs) {
  for (const char* const name : {"cpu.layer_norm.simd", "cpu.group_norm.simd"}) {
    const auto kernel = std::ranges::find(table_, name, &Kernel::name);
    ASSERT_NE(kernel, table_.end());
    for (const bool centred : {true, false}) {
      for (const double size : {1.0, 1e18, 1e20, 1e37}) {
        SCOPED_TRACE(fmt::format("{} {} x {}", name, centred ? "centred" : "rms", size));
        CaseBuilder c("norm", DType::fp32);
        const Shape shape{5, 3 * 37}, features{37};
        const Value x = c.in("x", shape, normal(size)), y = c.out("y", shape);
        const Value gamma = c.param("gamma", features), beta = c.param("beta", features);
        const Value mean = c.out("mean", {15}), rstd = c.out("rstd", {15});
        if (std::string_view(name) == "cpu.layer_norm.simd") {
          c.add(LayerNorm{x, gamma, beta, y, mean, rstd, 37});
        } else {
          c.add(GroupNorm{x, {}, {}, y, centred ? mean : Value{}, rstd, 3, 37, 1, 1e-5, centred});
        }
        expect_like_reference(*kernel, c.done(), 0, 64 * 37 * 0x1p-24);
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::test
