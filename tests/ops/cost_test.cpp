// Compares flops() and bytes() of each op with numbers computed by hand.
#include "tests/ops/cost.h"

#include <set>

namespace ridgeline::test {
namespace {

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
  EXPECT_EQ(cost(Unary{UnaryKind::sqrt, x, y}), (Cost{96, 192}));
  EXPECT_EQ(cost(UnaryGrad{UnaryKind::sqrt, x, z, y}), (Cost{144, 288}));
  EXPECT_EQ(cost(Dropout{x, c.step(), c.tick(), y, {}}), (Cost{480, 192}));
}

TEST(Cost, GatherTouchesTheBatchNotTheSet) {
  CaseBuilder c("", DType::fp32);
  const Value set = c.make("set", DType::uint8, {1000, 10}, Role::input, normal(1), 256);
  const Value order = c.make("order", DType::int32, {500}, Role::input, normal(1), 1000);
  const Value first = c.make("first", DType::int64, {1}, Role::input, constant(0));
  // 40 bytes of pixels, 4 sample numbers of 4 bytes, 40 floats.
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
  const Value copy = c.make("copy", DType::bf16, {25}, Role::copy, normal(1));  // 50 bytes more
  EXPECT_EQ(cost(SgdUpdate{w, dw, {}, c.lr(), c.tick(), {}, 0, 0, false, copy}), (Cost{100, 350}));
  AdamUpdate adam{w, dw, m, v, c.lr(), c.step(), c.tick(), {}};
  adam.copy = copy;
  EXPECT_EQ(cost(adam), (Cost{350, 750}));
  const Value norm = c.make("norm", DType::fp64, {1}, Role::output, normal(1));
  const Value clipped = c.make("clipped", DType::int64, {1}, Role::state, constant(0));
  // 25 elements of 4 bytes and 3 more; of four ranks each makes three quarters of an addition an
  // element, and sends three quarters of them twice.
  const Value few = c.in("few", {3}), token = c.make("token", DType::int64, {1}, Role::temp, {});
  EXPECT_EQ(cost(AllReduceStart{{dw, few}, {m, few}, token, 4, DType::fp32}), (Cost{21, 224}));
  EXPECT_EQ((AllReduceStart{{dw, few}, {m, few}, token, 4, DType::fp32}.network_bytes()), 168);
  EXPECT_EQ((AllReduceStart{{dw, few}, {m, few}, token, 4, DType::bf16}.network_bytes()), 84);
  EXPECT_EQ(cost(AllReduceWait{{dw, few}, {m, few}, token}), (Cost{0, 8}));
  EXPECT_EQ(cost(GlobalNorm{{dw, m}, norm, norm, clipped, 1.0}), (Cost{100, 200}));
  EXPECT_EQ(cost(Tick{c.tick()}), (Cost{0, 8}));
}

TEST(Cost, Recurrent) {
  CaseBuilder c("", DType::fp32);
  // T=3, B=2, in=5, H=4, both directions: 12 rows of 16 gates; w_ih 80, w_hh 64, biases 16.
  const RnnShape s{CellKind::lstm, Direction::both, 3, 2, 5, 4};
  const Value x = c.in("x", s.x()), y = c.out("y", s.y()), dy = c.in("dy", s.y());
  const Value reserve = c.temp("reserve", s.reserve()), h0 = c.in("h0", s.state());
  const Value gradients = c.temp("gradients", s.gate_gradients()), dx = c.out("dx", s.x());
  RnnDirections w;
  for (RnnWeights& each : w) {
    each = {c.param("w_ih", s.w_ih()), c.param("w_hh", s.w_hh()), c.param("b_ih", s.bias()),
            c.param("b_hh", s.bias())};
  }
  EXPECT_EQ(x.shape.numel(), 30);
  EXPECT_EQ(y.shape.numel(), 48);
  EXPECT_EQ(reserve.shape.numel(), 240);
  EXPECT_EQ(gradients.shape.numel(), 192);
  // 12 * 16 * (5 + 4) multiplications and as many additions; 104 for each of 48 elements.
  const double products = 12 * 16 * 2;
  EXPECT_EQ(cost(Rnn{s, x, w, {}, {}, {}, y, {}, {}, {}}),
            (Cost{products * 9 + 48 * 104, 4 * (30 + 2 * 176 + 48)}));
  EXPECT_EQ(cost(Rnn{s, x, w, h0, {}, {}, y, h0, {}, reserve}),
            (Cost{products * 9 + 48 * 104, 4 * (30 + 2 * 176 + 48 + 2 * 16 + 240)}));
  // y, reserve, dy, two w_hh read; the gate gradients written.
  EXPECT_EQ(cost(RnnGrad{s, y, reserve, w, {}, {}, {}, dy, {}, {}, gradients, {}, {}}),
            (Cost{products * 4 + 48 * 42, 4 * (48 + 240 + 48 + 128 + 192)}));
  EXPECT_EQ(cost(RnnGradX{s, gradients, w, dx}), (Cost{products * 5, 4 * (192 + 160 + 30)}));
  // Two sums of the 192 gate gradients for the biases.
  EXPECT_EQ(cost(RnnGradW{s, x, y, {}, {}, gradients, w}),
            (Cost{products * 9 + 2 * 192, 4 * (30 + 48 + 192 + 2 * 176)}));
}

TEST(Cost, CellsOfOtherKinds) {
  CaseBuilder c("", DType::fp32);
  const auto flops_of = [&](CellKind cell) {
    const RnnShape s{cell, Direction::forward, 3, 2, 5, 4};
    RnnDirections w;
    w[0] = {c.param("w_ih", s.w_ih()), c.param("w_hh", s.w_hh()), {}, {}};
    return Rnn{s, c.in("x", s.x()), w, {}, {}, {}, c.out("y", s.y()), {}, {}, {}}.flops();
  };
  EXPECT_EQ(flops_of(CellKind::rnn_relu), 6 * 4 * 2 * 9 + 24);
  EXPECT_EQ(flops_of(CellKind::rnn_tanh), 6 * 4 * 2 * 9 + 24 * 20);
  EXPECT_EQ(flops_of(CellKind::gru), 6 * 12 * 2 * 9 + 24 * 65);
}

TEST(Cost, Sequences) {
  CaseBuilder c("", DType::fp32);
  const Value token = c.make("token", DType::int32, {6}, Role::input, normal(1), 65);
  const Value w = c.param("w", {65, 8}), y = c.out("y", {6, 8});
  // Six rows of 32 bytes read and written, 24 bytes of tokens.
  EXPECT_EQ(cost(Embedding{token, w, y}), (Cost{0, 24 + 2 * 192}));
  EXPECT_EQ(cost(EmbeddingGrad{token, y, w}), (Cost{48, 24 + 192 + 65 * 32}));
  const Value x = c.in("x", {6, 10, 8});
  EXPECT_EQ(cost(SelectTimestep{10, -1, x, {}, y}), (Cost{0, 2 * 192}));
  EXPECT_EQ(cost(SelectTimestepGrad{10, -1, y, {}, x}), (Cost{0, 192 + 1920}));
  EXPECT_EQ(cost(Copy{x, x}), (Cost{0, 3840}));
}

// The work of a layer from outside is unknown, so only its memory counts.
TEST(Cost, LayersFromOutside) {
  CaseBuilder c("", DType::fp32);
  const Value x = c.in("x", {6, 8}), y = c.out("y", {6, 4}), w = c.param("w", {8});
  EXPECT_EQ(cost(Custom{nullptr, "own", x, {w}, y}), (Cost{0, 192 + 96 + 32}));
  EXPECT_EQ(cost(CustomGrad{nullptr, "own", x, y, y, {w}, x, {w}}),
            (Cost{0, 192 + 96 + 96 + 192 + 2 * 32}));
  EXPECT_EQ(cost(CustomGrad{nullptr, "own", x, y, y, {}, {}, {}}), (Cost{0, 192 + 96 + 96}));
}

TEST(Cost, OneHotConvolutionsAndArgmax) {
  CaseBuilder c("", DType::fp32);
  const Value token = c.make("token", DType::int32, {2, 9}, Role::input, normal(1), 5);
  const Value w = c.param("w", {3, 4, 5}), b = c.param("b", {3}), y = c.out("y", {2, 3 * 5});
  // 30 outputs of five added columns; 18 tokens, 60 weights, 3 biases and the outputs move.
  EXPECT_EQ(cost(OneHotConv1d{token, w, b, y}), (Cost{150, 4 * (18 + 60 + 3 + 30)}));
  EXPECT_EQ(cost(OneHotConv1d{token, w, {}, y}), (Cost{150, 4 * (18 + 60 + 30)}));
  EXPECT_EQ(cost(OneHotConv1dGradW{token, y, w, b}), (Cost{180, 4 * (18 + 60 + 3 + 30)}));
  EXPECT_EQ(cost(OneHotConv1dGradW{token, y, w, {}}), (Cost{150, 4 * (18 + 60 + 30)}));
  const Value x = c.in("x", {6, 4});
  const Value place = c.make("place", DType::int32, {6}, Role::output, normal(1));
  EXPECT_EQ(cost(Argmax{x, place}), (Cost{18, 96 + 24}));
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

TEST(Op, ActivationsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ActivationKind kind : kActivations) names.insert(name(kind));
  EXPECT_EQ(names.size(), std::size(kActivations));
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace ridgeline::test
