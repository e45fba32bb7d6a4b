#include "tests/ops/cost.h"

namespace ridgeline::test {
namespace {

TEST(LossCost, WeightedCrossEntropy) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {4, 10}), label = c.labels({4}, 10), dx = c.out("dx", {4, 10});
  const Value w = c.make("weights", DType::fp64, {10}, Role::input, normal(1));
  // 40 floats, 4 labels, 10 weights, and the tick and the loss.
  EXPECT_EQ(cost(SoftmaxXent{x, label, c.tick(), c.loss(), {}, 1, w}),
            (Cost{24 * 40, 160 + 16 + 80 + 12}));
  EXPECT_EQ(cost(SoftmaxXent{x, label, c.tick(), c.loss(), {}, 1, {}, 0.1}),
            (Cost{24 * 40, 160 + 16 + 12}));
  EXPECT_EQ(cost(SoftmaxXentGrad{x, label, dx, 1, {}, w}), (Cost{26 * 40, 160 + 16 + 80 + 160}));
}

TEST(LossCost, LossesOfElements) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {4, 10}), target = c.in("target", {4, 5}), dx = c.out("dx", {4, 10});
  const Value w = c.make("weights", DType::fp64, {2}, Role::input, normal(1));
  EXPECT_EQ(cost(ElementwiseLoss{LossFn::quantile, x, target, w, c.tick(), c.loss(), {}}),
            (Cost{5 * 40, 160 + 80 + 16 + 12}));
  EXPECT_EQ(cost(ElementwiseLoss{LossFn::bce_with_logits, x, x, {}, c.tick(), c.loss(), {}}),
            (Cost{30 * 40, 160 + 160 + 12}));
  EXPECT_EQ(cost(ElementwiseLossGrad{LossFn::quantile, x, target, w, dx}),
            (Cost{5 * 40, 160 + 80 + 16 + 160}));
}

TEST(LossCost, GroupNorms) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {2, 12}), y = c.out("y", {2, 12}), gamma = c.param("gamma", {4});
  const Value beta = c.param("beta", {4}), mean = c.out("mean", {4}), rstd = c.out("rstd", {4});
  // Two groups of two channels of three numbers: 24 + 4 + 4 + 24 + 4 + 4 floats.
  EXPECT_EQ(cost(GroupNorm{x, gamma, beta, y, mean, rstd, 2, 6, 3}), (Cost{8 * 24, 256}));
  EXPECT_EQ(cost(GroupNorm{x, gamma, {}, y, {}, {}, 1, 12, 1, 1e-5, false}), (Cost{5 * 24, 208}));
  EXPECT_EQ(cost(GroupNormGrad{x, gamma, mean, rstd, y, x, gamma, beta, 2, 6, 3}),
            (Cost{14 * 24, 368}));
  EXPECT_EQ(cost(GroupNormGrad{x, gamma, {}, rstd, y, {}, gamma, {}, 2, 6, 3, false}),
            (Cost{5 * 24, 240}));
}

}  // namespace
}  // namespace ridgeline::test
