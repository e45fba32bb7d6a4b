// Channels-last kernels compared with the oracle: alone, and on the values that their neighbours
// pass on.
#include <gtest/gtest.h>

#include <cmath>

#include "ridgeline/cuda/channels_last/kernels.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/libraries.h"
#include "tests/support/conv_cases.h"
#include "tests/support/pairs.h"

namespace ridgeline::test {
namespace {

constexpr DType kHalfTypes[] = {DType::bf16, DType::fp16};

KernelTable channels_last_kernels() {
  KernelTable table;
  for (const auto family : {cuda::channels_last_conv_kernels, cuda::channels_last_implicit_kernels,
                            cuda::channels_last_unrolled_kernels, cuda::channels_last_norm_kernels,
                            cuda::channels_last_image_kernels}) {
    for (Kernel& kernel : family()) table.push_back(std::move(kernel));
  }
  return table;
}

// A normalisation and its gradient over more rows than the blocks take at once, with a large mean,
// and over more channels than one block has threads for.
Case norm_case(DType dtype, int64_t n, const Image& in, double mean) {
  CaseBuilder c(fmt::format("batch_norm of {} x {}", n, to_string(in)), dtype);
  const Shape shape{n, in.numel()}, channels{in.c};
  const auto statistic = [&](const char* name, Role role) {
    return c.make(name, DType::fp32, channels, role, uniform(0.5, 2));
  };
  const Value gamma = c.param("gamma", channels, uniform(0.5, 1.5)),
              beta = c.param("beta", channels);
  const Value x = c.in("x", shape, uniform(mean - 1, mean + 1));
  const Value average = statistic("mean", Role::output), rstd = statistic("rstd", Role::output);
  const Value y = c.temp("y", shape), a = c.out("a", shape);
  c.add(BatchNorm{
      x, gamma, beta, statistic("running_mean", Role::state), statistic("running_var", Role::state),
      c.make("batches", DType::int64, {1}, Role::state, constant(4)), y, average, rstd, in});
  c.add(Activation{ActivationKind::relu, y, a});
  const Value da = c.temp("da", shape);
  c.add(ActivationGrad{ActivationKind::relu, a, c.in("dy", shape), da});
  c.add(BatchNormGrad{x, gamma, average, rstd, da, c.out("dx", shape), c.out("dgamma", channels),
                      c.out("dbeta", channels), in});
  return c.done();
}

Case filter_gradient_case(DType dtype, int64_t n, const Conv2dShape& shape, bool to_fp32 = true) {
  CaseBuilder c(fmt::format("conv2d_grad_w{}, {}", to_fp32 ? " to fp32" : "", shape.attributes()),
                dtype);
  const Value x = c.in("x", {n, shape.in.numel()}), dy = c.in("dy", {n, shape.out().numel()});
  const auto gradient = [&](const char* name, const Shape& of) {
    return to_fp32 ? c.accumulator(name, of, Role::output) : c.out(name, of);
  };
  c.add(Conv2dGradW{x, dy, gradient("dw", shape.weight()), gradient("db", {shape.k}), shape});
  return c.done();
}

// Filters of 3 x 3 over maps of one and of several boxes across, odd numbers of images, channels
// that do not fill a tile, and more strips than blocks, down to two rows each.
std::vector<Case> implicit_filter_gradient_cases(DType dtype) {
  const Slide same{3, 1, 1, 1};
  struct Layer {
    int64_t n;
    Image in;
    int64_t k;
  };
  std::vector<Case> all;
  for (const Layer& layer :
       {Layer{3, {64, 4, 4}, 64}, Layer{33, {128, 4, 4}, 64}, Layer{5, {64, 8, 8}, 128},
        Layer{17, {72, 3, 8}, 40}, Layer{3, {64, 16, 16}, 64}, Layer{1, {64, 32, 32}, 64},
        Layer{9, {8, 5, 48}, 136}, Layer{5, {24, 9, 12}, 16}, Layer{9001, {8, 2, 4}, 8},
        Layer{601, {8, 3, 32}, 8}}) {
    all.push_back(filter_gradient_case(dtype, layer.n, {layer.in, layer.k, {same, same}, 1}));
  }
  all.push_back(filter_gradient_case(dtype, 3, {{40, 6, 8}, 72, {same, same}, 1}, false));
  return all;
}

std::vector<Case> cases(DType dtype) {
  std::vector<Case> all = image_net_cases(dtype);
  all.push_back(norm_case(dtype, 37, {8, 5, 40}, 0));
  all.push_back(norm_case(dtype, 61, {40, 13, 17}, 3));
  all.push_back(norm_case(dtype, 3, {2064, 1, 3}, 0));
  for (Case& c : conv_cases(dtype)) all.push_back(std::move(c));
  for (Case& c : implicit_filter_gradient_cases(dtype)) all.push_back(std::move(c));
  for (Case& c : mixed_cases(dtype)) all.push_back(std::move(c));  // gradients in fp32
  all.push_back(filter_gradient_case(dtype, 12, {{16, 7, 6}, 24, {{3, 1, 1, 1}, {3, 1, 1, 1}}, 1}));
  all.push_back(filter_gradient_case(dtype, 5, {{8, 9, 8}, 8, {{3, 2, 0, 2}, {2, 1, 1, 1}}, 1}));
  return all;
}

class CudaChannelsLast : public GpuTest {};

TEST_F(CudaChannelsLast, KernelsAgreeWithTheOracle) {
  const KernelTable table = channels_last_kernels();
  for (const DType dtype : kHalfTypes) {
    Exercised exercised;
    for (const Case& c : cases(dtype)) {
      if (wanted(c)) walk(c, table, gpu(), exercised);
    }
    const Precision precision = dtype == DType::bf16 ? Precision::bf16 : Precision::fp16;
    expect_exercised(table, precision, gpu(), exercised,
                     [&](Library library) { return lacks(gpu(), library); });
  }
}

TEST_F(CudaChannelsLast, KernelsAgreeWithTheOracleOnWhatOtherKernelsGiveThem) {
  const KernelTable table = channels_last_kernels();
  Handed handed;
  for (const DType dtype : kHalfTypes) {
    for (const Case& c : image_net_cases(dtype)) {
      if (wanted(c)) walk_pairs(c, table, gpu(), handed);
    }
  }
  if (!all_wanted()) return;
  for (const char* kernel :
       {"cuda.batch_norm_relu_pool.channels_last", "cuda.batch_norm_relu_add.channels_last",
        "cuda.batch_norm_add_relu.channels_last", "cuda.pool_relu_batch_norm_grad.channels_last"}) {
    EXPECT_TRUE(handed.given_by.contains(kernel)) << kernel;
    EXPECT_TRUE(handed.taken_by.contains(kernel)) << kernel;
  }
}

}  // namespace
}  // namespace ridgeline::test
