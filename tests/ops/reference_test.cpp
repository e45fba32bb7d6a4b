// Compares the oracle itself with numbers computed by hand from each op's equation.
#include "ridgeline/cpu/reference/doubles.h"
#include "tests/ops/hand.h"

namespace ridgeline::test {
namespace {

const double kNan = std::nan("");

TEST(Reference, Linear) {
  CaseBuilder c("", DType::fp64);
  const Value x = c.in("x", {2, 3}), w = c.param("w", {2, 3}), b = c.param("b", {2});
  const Value y = c.out("y", {2, 2}), dy = c.in("dy", {2, 2});
  const Value dx = c.out("dx", {2, 3}), dw = c.out("dw", {2, 3}), db = c.out("db", {2});
  c.add(Linear{x, w, b, y});
  c.add(LinearGradX{dy, w, dx});
  c.add(LinearGradW{x, dy, dw, db});
  Hand hand(c.done());
  hand.set(x, {1, 2, 3, 4, 5, 6}).set(w, {1, 0, -1, 2, 3, 4}).set(b, {10, 20});
  hand.set(dy, {1, 2, 3, 4}).run();
  hand.expect(y, {8, 40, 8, 67});
  hand.expect(dx, {5, 6, 7, 11, 12, 13});
  hand.expect(dw, {13, 17, 21, 18, 24, 30});
  hand.expect(db, {4, 6});
}

TEST(Reference, ActivationsAtKnownPoints) {
  const std::vector<std::pair<ActivationKind, std::vector<double>>> known = {
      {ActivationKind::relu, {0, 0, 1}},
      {ActivationKind::tanh, {-0.76159415595576489, 0, 0.76159415595576489}},
      {ActivationKind::sigmoid, {0.26894142136999512, 0.5, 0.73105857863000488}},
      {ActivationKind::gelu, {-0.15865525393145705, 0, 0.84134474606854293}}};
  for (const auto& [kind, want] : known) {
    CaseBuilder c("", DType::fp64);
    const Value x = c.in("x", {3}), y = c.out("y", {3});
    c.add(Activation{kind, x, y});
    Hand(c.done()).set(x, {-1, 0, 1}).run().expect(y, want);
  }
}

TEST(Reference, ReluKeepsNan) {
  CaseBuilder c("", DType::fp64);
  const Value x = c.in("x", {2}), y = c.out("y", {2});
  c.add(Activation{ActivationKind::relu, x, y});
  Hand(c.done()).set(x, {kNan, -2}).run().expect(y, {kNan, 0});
}

TEST(Reference, SoftmaxXent) {
  CaseBuilder c("", DType::fp64);
  const Value x = c.in("x", {2, 2}), label = c.labels({2}, 2);
  c.add(SoftmaxXent{x, label, c.tick(), c.loss(), c.correct(), 0.5});
  Hand hand(c.done());
  // Row 0: p = 1/4, 3/4 with label 1. Row 1: a tie too large for exp, which the first class wins.
  hand.set(x, {0, std::log(3.0), 1000, 1000}).set(label, {1, 1}).run();
  hand.expect(c.loss(), {kNan, kNan, 0.5 * (std::log(4.0 / 3) + std::log(2.0)), kNan});
  hand.expect(c.correct(), {0x7f7f7f7f, 0x7f7f7f7f, 1, 0x7f7f7f7f});
}

TEST(Reference, SoftmaxGradient) {
  CaseBuilder c("", DType::fp64);
  const Value x = c.in("x", {1, 2}), label = c.labels({1}, 2), dx = c.out("dx", {1, 2});
  const Value y = c.out("y", {1, 2});
  c.add(SoftmaxXentGrad{x, label, dx, 0.5});
  c.add(Softmax{x, y});
  Hand hand(c.done());
  hand.set(x, {0, std::log(3.0)}).set(label, {1}).run();
  hand.expect(dx, {0.125, -0.125});
  hand.expect(y, {0.25, 0.75});
}

TEST(Reference, Mse) {
  CaseBuilder c("", DType::fp64);
  const Value x = c.in("x", {2, 2}), label = c.labels({2}, 2), dx = c.out("dx", {2, 2});
  c.add(Mse{x, label, c.tick(), c.loss(), c.correct(), 0.25});
  c.add(MseGrad{x, label, dx, 0.25});
  Hand hand(c.done());
  hand.set(x, {3, 1, 0, 2}).set(label, {0, 0}).run();
  hand.expect(c.loss(), {kNan, kNan, 0.25 * (4 + 1 + 1 + 4), kNan});
  hand.expect(c.correct(), {0x7f7f7f7f, 0x7f7f7f7f, 1, 0x7f7f7f7f});
  hand.expect(dx, {1, 0.5, -0.5, 1});
}

TEST(Reference, GatherPicksTheBatchOfItsTick) {
  CaseBuilder c("", DType::fp64);
  const Value set = c.make("set", DType::uint8, {4, 1}, Role::input, normal(1), 256);
  const Value order = c.make("order", DType::int32, {7}, Role::input, normal(1), 4);
  const Value first = c.make("first", DType::int64, {1}, Role::input, constant(1));
  const Value y = c.out("y", {2, 1});
  c.add(Gather{set, order, first, c.tick(), y, 0.5, -1});  // tick 2: from 1 + 2 * 2
  Hand(c.done())
      .set(set, {10, 20, 30, 40})
      .set(order, {0, 0, 0, 0, 0, 3, 1})
      .run()
      .expect(y, {19, 9});
}

TEST(Reference, SgdTwoStepsOfNesterov) {
  CaseBuilder c("", DType::fp64);
  const Value w = c.param("w", {1}), dw = c.in("dw", {1}), m = c.state("m", {1});
  const Value scale = c.make("scale", DType::fp64, {1}, Role::input, constant(0.5));
  c.add(SgdUpdate{w, dw, m, c.lr(), c.tick(), scale, 0.9, 0.1, true});
  Hand hand(c.done());
  hand.set(w, {1}).set(dw, {2}).set(m, {0}).set(c.lr(), {9, 9, 0.1, 9}).run();
  // g = 2/2 + 0.1 = 1.1; m = 1.1; g + 0.9 m = 2.09; w = 1 - 0.209
  hand.expect(m, {1.1});
  hand.expect(w, {0.791});
  hand.run();  // g = 1.0791; m = 0.99 + 1.0791; g + 0.9 m = 2.94129
  hand.expect(m, {2.0691});
  hand.expect(w, {0.791 - 0.294129});
}

TEST(Reference, AdamsFirstStepMovesByTheRate) {
  CaseBuilder c("", DType::fp64);
  const Value w = c.param("w", {2}), dw = c.in("dw", {2});
  const Value m = c.state("m", {2}), v = c.state("v", {2});
  AdamUpdate op{w, dw, m, v, c.lr(), c.step(), c.tick(), {}};
  op.epsilon = 0;
  op.decoupled = true;
  op.weight_decay = 0.5;
  c.add(op);
  Hand hand(c.done());
  hand.set(w, {1, 2}).set(dw, {0.3, -7}).set(m, {0, 0}).set(v, {0, 0});
  hand.set(c.lr(), {0.1, 0, 0, 0}).set(c.step(), {0}).set(c.tick(), {0}).run();
  hand.expect(w, {0.95 - 0.1, 1.9 + 0.1});  // decay by lr * 0.5, then lr * sign(g)
  hand.expect(m, {0.03, -0.7});
  hand.expect(v, {0.001 * 0.09, 0.001 * 49});
}

TEST(Reference, GlobalNormClipsAndCounts) {
  CaseBuilder c("", DType::fp64);
  const Value a = c.in("a", {2}), b = c.in("b", {1});
  const Value norm = c.make("norm", DType::fp64, {1}, Role::output, normal(1));
  const Value scale = c.make("scale", DType::fp64, {1}, Role::output, normal(1));
  const Value clipped = c.make("clipped", DType::int64, {1}, Role::state, constant(5));
  c.add(GlobalNorm{{a, b}, norm, scale, clipped, 3.5});
  Hand hand(c.done());
  hand.set(a, {2, 3}).set(b, {6}).run();
  hand.expect(norm, {7});
  hand.expect(scale, {0.5});
  hand.expect(clipped, {6});
  hand.set(a, {0, 0}).set(b, {0}).run();
  hand.expect(scale, {1});
  hand.expect(clipped, {6});
}

// The scale is divided out, halved when a gradient overflows and doubled after two good steps.
TEST(Reference, GlobalNormGuardsTheLossScale) {
  CaseBuilder c("", DType::fp16);
  const Value a = c.in("a", {2});
  const Value norm = c.make("norm", DType::fp64, {1}, Role::output, normal(1));
  const Value scale = c.make("scale", DType::fp64, {1}, Role::output, normal(1));
  const auto counter = [&](const char* name) {
    return c.make(name, DType::int64, {1}, Role::state, constant(0));
  };
  const Value clipped = counter("clipped"), good = counter("good"), skipped = counter("skipped");
  const Value loss_scale = c.loss_scale(8);
  c.add(GlobalNorm{{a}, norm, scale, clipped, 1.0, loss_scale, good, skipped, 2});
  Hand hand(c.done());
  hand.set(a, {24, 32}).run();  // 40 / 8 = 5, clipped to 1
  hand.expect(norm, {5}).expect(scale, {0.2 / 8}).expect(clipped, {1}).expect(good, {1});
  hand.set(a, {1, INFINITY}).run();
  hand.expect(scale, {0}).expect(loss_scale, {4}).expect(good, {0}).expect(skipped, {1});
  hand.expect(clipped, {1});
  hand.set(a, {0, 2}).run();
  hand.expect(scale, {0.25}).expect(loss_scale, {4}).expect(good, {1});
  hand.run();
  hand.expect(scale, {0.25}).expect(loss_scale, {8}).expect(good, {0}).expect(skipped, {1});
}

// The copy is made from the stored weight: 1 + 2^-8 + 2^-30 is 1 + 2^-8 in fp32, a tie in bf16 that
// goes to the even 1; the exact number would round up.
TEST(Reference, ACopyIsRoundedFromTheStoredWeight) {
  CaseBuilder c("", DType::bf16);
  const Value w = c.accumulator("w", {2}, Role::param), dw = c.accumulator("dw", {2}, Role::input);
  const Value scale = c.make("scale", DType::fp64, {1}, Role::input, constant(1));
  const Value copy = c.copy(w);
  c.add(SgdUpdate{w, dw, {}, c.lr(), c.tick(), scale, 0, 0, false, copy});
  Hand hand(c.done());
  hand.set(w, {1 + 0x1p-8, 3}).set(dw, {-0x1p-30, 1}).set(c.lr(), {9, 9, 1, 9}).run();
  hand.expect(w, {1 + 0x1p-8, 2}).expect(copy, {1, 2});
  hand.set(scale, {0}).set(dw, {NAN, INFINITY}).run();  // skipped
  hand.expect(w, {1 + 0x1p-8, 2}).expect(copy, {1, 2});
}

TEST(Reference, DropoutKeepsTheRightShareAndDiffersByStep) {
  CaseBuilder c("", DType::fp64);
  const Shape shape{100, 100};
  const Value x = c.in("x", shape, constant(1)), y = c.out("y", shape), z = c.out("z", shape);
  const Value later = c.make("later", DType::int64, {1}, Role::input, constant(8));
  const DropoutMask mask{.p = 0.25, .seed = 1, .layer = 0, .sample_offset = 0};
  c.add(Dropout{x, c.step(), c.tick(), y, mask});
  c.add(Dropout{x, later, c.tick(), z, mask});
  const Case built = c.done();
  const Arrays arrays = run_reference(built.program, built.inputs());
  int kept = 0, same = 0;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const double value = arrays[y].as<double>()[i];
    EXPECT_TRUE(value == 0 || value == 1 / 0.75);
    kept += value != 0;
    same += value == arrays[z].as<double>()[i];
  }
  EXPECT_NEAR(kept, 7500, 5 * std::sqrt(10000 * 0.25 * 0.75));
  EXPECT_NEAR(same, 6250, 5 * std::sqrt(10000 * 0.625 * 0.375));  // as for independent masks
}

TEST(Reference, HalvesAreRoundedOnce) {
  // Just above a tie of bf16, by less than fp32 resolves: rounding twice would give the even
  // neighbour.
  const double above = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(float(cpu::round_to<Bf16>(above)), 1.0f + 0x1p-7f);
  EXPECT_EQ(float(cpu::round_to<Bf16>(-above)), -1.0f - 0x1p-7f);
  EXPECT_EQ(float(cpu::round_to<Bf16>(1.0 + 0x1p-8)), 1.0f);
  EXPECT_EQ(float(cpu::round_to<Fp16>(1.0 + 0x1p-11 + 0x1p-50)), 1.0f + 0x1p-10f);
  EXPECT_TRUE(std::isinf(float(cpu::round_to<Fp16>(1e300))));
  EXPECT_TRUE(std::isnan(float(cpu::round_to<Bf16>(std::nan("")))));
}

}  // namespace
}  // namespace ridgeline::test
