// flops() and bytes() of each op against numbers worked out by hand.
#include <gtest/gtest.h>

#include "tests/support/cases.h"

namespace ridgeline::test {
namespace {

struct Cost {
  double flops, bytes;
  bool operator==(const Cost&) const = default;
};

Cost cost(const Op& op) { return {flops(op), bytes(op)}; }

std::ostream& operator<<(std::ostream& out, const Cost& cost) {
  return out << cost.flops << " flops, " << cost.bytes << " bytes";
}

TEST(Cost, Linear) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {3, 5}), w = c.param("w", {7, 5}), b = c.param("b", {7});
  const Value y = c.out("y", {3, 7});
  // 3*7 dot products of 5 multiplications and additions; 15 + 35 + 7 + 21 floats.
  EXPECT_EQ(cost(Linear{x, w, b, y}), (Cost{210, 312}));
  EXPECT_EQ(cost(Linear{x, w, {}, y}), (Cost{210, 284}));
  EXPECT_EQ(cost(LinearGradX{y, w, x}), (Cost{210, 284}));
  EXPECT_EQ(cost(LinearGradW{x, y, w, {}}), (Cost{210, 284}));
  EXPECT_EQ(cost(LinearGradW{x, y, w, b}), (Cost{231, 312}));  // 21 additions for db
}

TEST(Cost, WidthOfTheTypeCounts) {
  for (const auto& [dtype, bytes] : {std::pair{DType::fp64, 120.0}, {DType::bf16, 30.0}}) {
    CaseBuilder c("", dtype);
    const Value x = c.in("x", {3, 5}), w = c.param("w", {1, 5});
    EXPECT_EQ(Linear({x, w, {}, c.out("y", {3, 1})}).bytes(), bytes / 15 * (15 + 5 + 3));
  }
}

TEST(Cost, Elementwise) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {4, 6}), y = c.out("y", {4, 6}), z = c.in("z", {4, 6});
  EXPECT_EQ(cost(Activation{ActivationKind::relu, x, y}), (Cost{24, 192}));
  EXPECT_EQ(cost(Activation{ActivationKind::tanh, x, y}), (Cost{480, 192}));
  EXPECT_EQ(cost(ActivationGrad{ActivationKind::relu, x, z, y}), (Cost{72, 288}));
  EXPECT_EQ(cost(ActivationGrad{ActivationKind::gelu, x, z, y}), (Cost{720, 288}));
  EXPECT_EQ(cost(Dropout{x, c.step(), c.tick(), y, {}}), (Cost{480, 192}));
}

TEST(Cost, GatherTouchesTheBatchNotTheSet) {
  CaseBuilder c("", DType::fp32);
  const Value set = c.make("set", DType::uint8, {1000, 10}, Role::input, normal(1), 256);
  const Value order = c.make("order", DType::int32, {500}, Role::input, normal(1), 1000);
  const Value first = c.make("first", DType::int64, {1}, Role::input, constant(0));
  // 40 bytes of pixels, 4 row numbers of 4 bytes, 40 floats.
  EXPECT_EQ(cost(Gather{set, order, first, c.tick(), c.out("y", {4, 10})}), (Cost{80, 216}));
  const Value labels = c.make("labels", DType::int32, {1000}, Role::input, normal(1), 10);
  const Value y = c.make("y", DType::int32, {4}, Role::output, normal(1), 10);
  EXPECT_EQ(cost(Gather{labels, order, first, c.tick(), y}), (Cost{0, 48}));
}

TEST(Cost, Losses) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {4, 10}), y = c.out("y", {4, 10}), target = c.in("target", {4, 10});
  const Value label = c.labels({4}, 10);
  // 160 bytes of logits, 16 of labels, a loss of 8 and a count of 4.
  EXPECT_EQ(cost(SoftmaxXent{x, label, c.tick(), c.loss(), c.correct()}), (Cost{880, 188}));
  EXPECT_EQ(cost(SoftmaxXentGrad{x, label, y}), (Cost{960, 336}));
  EXPECT_EQ(cost(Softmax{x, y}), (Cost{880, 320}));
  EXPECT_EQ(cost(Mse{x, label, c.tick(), c.loss(), c.correct()}), (Cost{120, 188}));
  EXPECT_EQ(cost(Mse{x, target, c.tick(), c.loss(), {}}), (Cost{120, 332}));
  EXPECT_EQ(cost(MseGrad{x, label, y}), (Cost{80, 336}));
  EXPECT_EQ(cost(MseGrad{x, target, y}), (Cost{80, 480}));
}

TEST(Cost, Updates) {
  CaseBuilder c("", DType::fp32);
  const Value w = c.param("w", {25}), dw = c.in("dw", {25}), m = c.state("m", {25});
  const Value v = c.state("v", {25});
  // w is read and written, dw read: 3 * 100 bytes; the momentum is read and written as well.
  EXPECT_EQ(cost(SgdUpdate{w, dw, {}, c.lr(), c.tick(), {}}), (Cost{100, 300}));
  EXPECT_EQ(cost(SgdUpdate{w, dw, m, c.lr(), c.tick(), {}, 0.9}), (Cost{150, 500}));
  EXPECT_EQ(cost(AdamUpdate{w, dw, m, v, c.lr(), c.step(), c.tick(), {}}), (Cost{350, 700}));
  const Value norm = c.make("norm", DType::fp64, {1}, Role::output, normal(1));
  const Value clipped = c.make("clipped", DType::int64, {1}, Role::state, constant(0));
  EXPECT_EQ(cost(GlobalNorm{{dw, m}, norm, norm, clipped, 1.0}), (Cost{100, 200}));
  EXPECT_EQ(cost(Tick{c.tick()}), (Cost{0, 8}));
}

TEST(Op, NamesItsPresentValuesOnly) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {3, 5}), w = c.param("w", {7, 5}), y = c.out("y", {3, 7});
  const Op op = Linear{x, w, {}, y};
  EXPECT_STREQ(name(op), "linear");
  ASSERT_EQ(reads(op).size(), 2u);
  EXPECT_EQ(reads(op)[1].id, w.id);
  ASSERT_EQ(writes(op).size(), 1u);
  EXPECT_EQ(describe(op), "linear [3, 5] [7, 5] -> [3, 7] fp32");
}

TEST(Op, ActivationsHaveNames) {
  for (const ActivationKind kind : kActivations) EXPECT_EQ(parse_activation(name(kind)), kind);
  EXPECT_THROW(parse_activation("swish"), Error);
}

}  // namespace
}  // namespace ridgeline::test
