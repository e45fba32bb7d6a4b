// Compares flops() and bytes() of the ops over images with numbers computed by hand.
#include "tests/ops/cost.h"

namespace ridgeline::test {
namespace {

// 3x3 with a border of one over 4x4: two of three taps are inside the image at the edges, and all
// three elsewhere, so 2 + 3 + 3 + 2 = 10 along each axis and 100 in total.
constexpr Image kImage{2, 4, 4};
constexpr Window kSame{{3, 1, 1, 1}, {3, 1, 1, 1}};

TEST(ImageCost, Convolution) {
  CaseBuilder c("", DType::fp32);
  const Conv2dShape s{kImage, 3, kSame, 1};
  const Value x = c.in("x", {2, 32}), w = c.param("w", s.weight()), b = c.param("b", {3});
  const Value y = c.out("y", {2, 48});
  // Two samples, 3 x 2 channels, 100 taps, a multiplication and an addition each; 64 + 54 + 3 + 96
  // floats.
  EXPECT_EQ(cost(Conv2d{x, w, b, y, s}), (Cost{2 * 2 * 600, 868}));
  EXPECT_EQ(cost(Conv2d{x, w, {}, y, s}), (Cost{2400, 856}));
  EXPECT_EQ(cost(Conv2dGradX{y, w, x, s}), (Cost{2400, 856}));
  EXPECT_EQ(cost(Conv2dGradW{x, y, w, b, s}), (Cost{2400 + 96, 868}));
  EXPECT_EQ(cost(Conv2dGradW{x, y, w, {}, s}), (Cost{2400, 856}));
  // Two groups: each output channel sees one input channel.
  const Conv2dShape split{kImage, 2, kSame, 2};
  const Value v = c.param("v", split.weight()), z = c.out("z", {2, 32});
  EXPECT_EQ(v.shape.numel(), 18);
  EXPECT_EQ(cost(Conv2d{x, v, {}, z, split}), (Cost{2 * 2 * 200, 4 * (64 + 18 + 64)}));
}

TEST(ImageCost, Pools) {
  CaseBuilder c("", DType::fp32);
  const PoolShape s{kImage, {{2, 2, 0, 1}, {2, 2, 0, 1}}};
  const Value x = c.in("x", {2, 32}), dx = c.out("dx", {2, 32});
  const Value y = c.out("y", {2, 8}), dy = c.in("dy", {2, 8});
  // Every pixel is read once; 64 + 16 floats.
  EXPECT_EQ(cost(MaxPool{x, y, s}), (Cost{64, 320}));
  EXPECT_EQ(cost(MaxPoolGrad{x, y, dy, dx, s}), (Cost{64 + 16, 640}));
  EXPECT_EQ(cost(AvgPool{x, y, s}), (Cost{64 + 16, 320}));
  EXPECT_EQ(cost(AvgPoolGrad{dy, dx, s}), (Cost{64 + 16, 320}));
}

TEST(ImageCost, LayerNorms) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {2, 12}), y = c.out("y", {2, 12}), gamma = c.param("gamma", {4});
  const Value beta = c.param("beta", {4}), mean = c.out("mean", {6}), rstd = c.out("rstd", {6});
  // 24 + 4 + 4 + 24 + 6 + 6 floats.
  EXPECT_EQ(cost(LayerNorm{x, gamma, beta, y, mean, rstd, 4}), (Cost{8 * 24, 272}));
  EXPECT_EQ(cost(LayerNorm{x, {}, {}, y, {}, {}, 4}), (Cost{8 * 24, 192}));
  // 24 + 4 + 6 + 6 + 24 read, 24 + 4 + 4 written.
  EXPECT_EQ(cost(LayerNormGrad{x, gamma, mean, rstd, y, x, gamma, beta, 4}), (Cost{14 * 24, 384}));
  EXPECT_EQ(cost(LayerNormGrad{x, gamma, mean, rstd, y, {}, gamma, beta, 4}), (Cost{5 * 24, 288}));
}

TEST(ImageCost, BatchNorms) {
  CaseBuilder c("", DType::fp32);
  const Image in{3, 2, 2};
  const Value x = c.in("x", {2, 12}), y = c.out("y", {2, 12}), gamma = c.param("gamma", {3});
  const Value beta = c.param("beta", {3}), mean = c.out("mean", {3}), rstd = c.out("rstd", {3});
  const Value running = c.state("running", {3}), var = c.state("var", {3});
  const Value batches = c.make("batches", DType::int64, {1}, Role::state, constant(0));
  // 24 + 4 * 3 floats and a counter of 8 bytes, each way.
  EXPECT_EQ(cost(BatchNorm{x, gamma, beta, running, var, batches, y, mean, rstd, in}),
            (Cost{8 * 24, 304}));
  // 24 + 3 * 3 + 24 read, 24 + 3 + 3 written.
  EXPECT_EQ(cost(BatchNormGrad{x, gamma, mean, rstd, y, x, gamma, beta, in}), (Cost{240, 348}));
  EXPECT_EQ(cost(BatchNormGrad{x, gamma, mean, rstd, y, {}, gamma, beta, in}), (Cost{120, 252}));
  EXPECT_EQ(cost(BatchNormInfer{x, gamma, beta, mean, var, y, in}), (Cost{48, 240}));
}

TEST(ImageCost, AugmentedGatherTouchesTheBatchAlone) {
  CaseBuilder c("", DType::fp32);
  const Value set = c.make("set", DType::uint8, {100, 12}, Role::input, normal(1), 256);
  const Value order = c.make("order", DType::int32, {100}, Role::input, normal(1), 100);
  const Value first = c.make("first", DType::int64, {1}, Role::input, constant(0));
  const Value epoch = c.make("epoch", DType::int64, {1}, Role::input, constant(0));
  // 48 bytes of pixels, 4 sample numbers of 4 bytes, 48 floats.
  EXPECT_EQ(cost(GatherAugment{
                set, order, first, c.tick(), epoch, c.out("y", {4, 12}), 1, 0, Image{3, 2, 2}, {}}),
            (Cost{96, 256}));
}

}  // namespace
}  // namespace ridgeline::test
