// Compares flops() and bytes() of the image ops with numbers computed by hand, and checks the
// geometry of windows.
#include <gtest/gtest.h>

#include "tests/support/cases.h"

namespace ridgeline::test {
namespace {

TEST(Window, CountsOutputsAndTapsOnTheImage) {
  const Slide same{3, 1, 1, 1};
  EXPECT_EQ(same.outputs(5), 5);
  EXPECT_EQ(same.taps(5), 13);  // 2 + 3 + 3 + 3 + 2
  const Slide strided{2, 2, 0, 1};
  EXPECT_EQ(strided.outputs(5), 2);
  EXPECT_EQ(strided.taps(5), 4);
  const Slide dilated{3, 1, 0, 2};
  EXPECT_EQ(dilated.reach(), 5);
  EXPECT_EQ(dilated.outputs(5), 1);
  EXPECT_EQ(dilated.outputs(4), 0);
  EXPECT_EQ(dilated.at(1, 2), 5);
}

TEST(Cost, Conv2d) {
  CaseBuilder c("", DType::fp32);
  // 2 samples of 3x5x5 to 4 channels of 5x5 by 3x3 windows with padding 1.
  const Conv2dShape shape{{3, 5, 5}, 4, {{3, 1, 1, 1}, {3, 1, 1, 1}}, 1};
  const Value x = c.in("x", {2, 75}), w = c.param("w", shape.weight()), b = c.param("b", {4});
  const Value y = c.out("y", {2, 100});
  // 13 * 13 taps on the image for each pair of channels: 2 * 2 * 4 * 3 * 169.
  EXPECT_EQ(Conv2d({x, w, b, y, shape}).flops(), 8112);
  EXPECT_EQ(Conv2d({x, w, b, y, shape}).bytes(), 4 * (150 + 108 + 4 + 200));
  EXPECT_EQ(Conv2dGradX({y, w, x, shape}).flops(), 8112);
  EXPECT_EQ(Conv2dGradX({y, w, x, shape}).bytes(), 4 * (200 + 108 + 150));
  EXPECT_EQ(Conv2dGradW({x, y, w, {}, shape}).flops(), 8112);
  EXPECT_EQ(Conv2dGradW({x, y, w, b, shape}).flops(), 8112 + 200);
  EXPECT_EQ(Conv2dGradW({x, y, w, b, shape}).bytes(), 4 * (150 + 200 + 108 + 4));
  EXPECT_EQ(Conv2d({x, w, b, y, shape}).attributes(),
            "in=3x5x5,out=4x5x5,kernel=3x3,stride=1x1,pad=1x1,dilation=1x1,groups=1");
}

TEST(Cost, GroupsDivideTheWork) {
  CaseBuilder c("", DType::fp32);
  const Conv2dShape shape{{4, 3, 3}, 4, {{3}, {3}}, 2};
  EXPECT_EQ(shape.weight(), (Shape{4, 2, 3, 3}));
  const Value x = c.in("x", {1, 36}), w = c.param("w", shape.weight()), y = c.out("y", {1, 4});
  EXPECT_EQ(Conv2d({x, w, {}, y, shape}).flops(), 2 * 4 * 2 * 9);
}

TEST(Cost, Pools) {
  CaseBuilder c("", DType::fp32);
  const PoolShape shape{{2, 4, 4}, {{2, 2, 0, 1}, {2, 2, 0, 1}}};
  const Value x = c.in("x", {3, 32}), y = c.out("y", {3, 8}), dy = c.in("dy", {3, 8});
  const Value dx = c.out("dx", {3, 32});
  EXPECT_EQ(MaxPool({x, y, shape}).flops(), 96);
  EXPECT_EQ(MaxPool({x, y, shape}).bytes(), 4 * (96 + 24));
  EXPECT_EQ(MaxPoolGrad({x, y, dy, dx, shape}).flops(), 96 + 24);
  EXPECT_EQ(MaxPoolGrad({x, y, dy, dx, shape}).bytes(), 4 * (96 + 24 + 24 + 96));
  EXPECT_EQ(AvgPool({x, y, shape}).flops(), 96 + 24);
  EXPECT_EQ(AvgPool({x, y, shape}).bytes(), 4 * (96 + 24));
  EXPECT_EQ(AvgPoolGrad({dy, dx, shape}).flops(), 96 + 24);
  EXPECT_EQ(AvgPoolGrad({dy, dx, shape}).bytes(), 4 * (24 + 96));
}

TEST(Cost, Normalisations) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {3, 8}), y = c.out("y", {3, 8}), dy = c.in("dy", {3, 8});
  const Value gamma = c.param("gamma", {8}), beta = c.param("beta", {8});
  const Value mean = c.out("mean", {3}), rstd = c.out("rstd", {3});
  EXPECT_EQ(LayerNorm({x, gamma, beta, y, mean, rstd, 8}).flops(), 192);
  EXPECT_EQ(LayerNorm({x, gamma, beta, y, mean, rstd, 8}).bytes(), 4 * (24 + 16 + 24 + 6));
  EXPECT_EQ(LayerNorm({x, {}, {}, y, {}, {}, 8}).bytes(), 4 * 48);
  EXPECT_EQ(LayerNormGrad({x, gamma, mean, rstd, dy, y, gamma, beta, 8}).flops(), 14 * 24);
  EXPECT_EQ(LayerNormGrad({x, gamma, mean, rstd, dy, {}, gamma, beta, 8}).flops(), 5 * 24);
  EXPECT_EQ(LayerNormGrad({x, gamma, mean, rstd, dy, y, gamma, beta, 8}).bytes(),
            4 * (24 + 8 + 6 + 24 + 24 + 16));

  const Image in{2, 2, 2};
  const Value g = c.param("g", {2}), b = c.param("b", {2}), m = c.out("m", {2});
  const Value running = c.state("running", {2});
  const Value batches = c.make("batches", DType::int64, {1}, Role::state, constant(0));
  EXPECT_EQ(BatchNorm({x, g, b, running, running, batches, y, m, m, in}).flops(), 192);
  // x, gamma, beta and y, mean, rstd once; the running statistics and the counter twice.
  EXPECT_EQ(BatchNorm({x, g, b, running, running, batches, y, m, m, in}).bytes(),
            4 * (24 + 4 + 24 + 4) + 2 * (4 * 4 + 8));
  EXPECT_EQ(BatchNormGrad({x, g, m, m, dy, y, g, b, in}).flops(), 240);
  EXPECT_EQ(BatchNormGrad({x, g, m, m, dy, y, g, b, in}).bytes(), 4 * (24 + 6 + 24 + 24 + 4));
  EXPECT_EQ(BatchNormInfer({x, g, b, m, m, y, in}).flops(), 48);
  EXPECT_EQ(BatchNormInfer({x, g, b, m, m, y, in}).bytes(), 4 * (48 + 8));
}

TEST(Cost, GatherAugmentTouchesTheBatch) {
  CaseBuilder c("", DType::fp32);
  const Value set = c.make("set", DType::uint8, {1000, 2, 5}, Role::input, normal(1), 256);
  const Value order = c.make("order", DType::int32, {500}, Role::input, normal(1), 1000);
  const Value first = c.make("first", DType::int64, {1}, Role::input, constant(0));
  const Value epoch = c.make("epoch", DType::int64, {1}, Role::input, constant(0));
  const GatherAugment op{set, order, first,     c.tick(),    epoch, c.out("y", {4, 10}),
                         1,   0,     {1, 2, 5}, {7, 1, true}};
  EXPECT_EQ(op.flops(), 80);
  EXPECT_EQ(op.bytes(), 40 + 16 + 160);
}

}  // namespace
}  // namespace ridgeline::test
