// Compares each gradient op with central differences of its forward op, in fp64 through the
// reference kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/ops/differentiable.h"

namespace ridgeline::test {
namespace {

Differentiable linear(bool bias, int64_t n, int64_t in, int64_t out) {
  CaseBuilder c("linear", DType::fp64);
  const Value x = c.in("x", {n, in}), w = c.param("w", {out, in});
  const Value b = bias ? c.param("b", {out}) : Value{};
  const Value y = c.out("y", {n, out}), dy = c.in("dy", {n, out});
  const Value dx = c.out("dx", {n, in}), dw = c.out("dw", {out, in});
  const Value db = bias ? c.out("db", {out}) : Value{};
  c.add(Linear{x, w, b, y});
  c.add(LinearGradX{dy, w, dx});
  c.add(LinearGradW{x, dy, dw, db});
  Differentiable d{c.done(), 1, y, dy, {{x, dx}, {w, dw}}};
  if (bias) d.wanted.emplace_back(b, db);
  return d;
}

Differentiable activation(ActivationKind kind) {
  CaseBuilder c(name(kind), DType::fp64);
  const Value x = c.in("x", {5, 7}, normal(2)), y = c.out("y", {5, 7});
  const Value dy = c.in("dy", {5, 7}), dx = c.out("dx", {5, 7});
  c.add(Activation{kind, x, y});
  c.add(ActivationGrad{kind, saves_output(kind) ? y : x, dy, dx});
  return {c.done(), 1, y, dy, {{x, dx}}};
}

Differentiable unary(UnaryKind kind) {
  CaseBuilder c(name(kind), DType::fp64);
  const bool any = kind == UnaryKind::exp || kind == UnaryKind::sin;
  const Value x = c.in("x", {5, 7}, any ? normal(2) : uniform(0.2, 4)), y = c.out("y", {5, 7});
  const Value dy = c.in("dy", {5, 7}), dx = c.out("dx", {5, 7});
  c.add(Unary{kind, x, y});
  c.add(UnaryGrad{kind, x, dy, dx});
  return {c.done(), 1, y, dy, {{x, dx}}};
}

Differentiable dropout(double p) {
  CaseBuilder c("dropout", DType::fp64);
  const Value x = c.in("x", {5, 7}), y = c.out("y", {5, 7});
  const Value dy = c.in("dy", {5, 7}), dx = c.out("dx", {5, 7});
  const DropoutMask mask{.p = p, .seed = 5, .layer = 2, .sample_offset = 11};
  c.add(Dropout{x, c.step(), c.tick(), y, mask});
  c.add(Dropout{dy, c.step(), c.tick(), dx, mask});
  return {c.done(), 1, y, dy, {{x, dx}}};
}

Differentiable softmax_xent(int64_t n, int64_t classes) {
  CaseBuilder c("softmax_xent", DType::fp64);
  const Value x = c.in("x", {n, classes}, normal(3)), label = c.labels({n}, classes);
  const Value dx = c.out("dx", {n, classes});
  c.add(SoftmaxXent{x, label, c.tick(), c.loss(), c.correct(), 0.7});
  c.add(SoftmaxXentGrad{x, label, dx, 0.7});
  return {c.done(), 1, c.loss(), {}, {{x, dx}}};
}

Differentiable mse(bool labels) {
  CaseBuilder c("mse", DType::fp64);
  const Value x = c.in("x", {5, 4});
  const Value target = labels ? c.labels({5}, 4) : c.in("target", {5, 4});
  const Value dx = c.out("dx", {5, 4});
  c.add(Mse{x, target, c.tick(), c.loss(), {}, 0.3});
  c.add(MseGrad{x, target, dx, 0.3});
  return {c.done(), 1, c.loss(), {}, {{x, dx}}};
}

Value sample_weights_of(CaseBuilder& c, bool given, int64_t samples) {
  return given ? c.in("sample_weights", {samples}, uniform(0.2, 4)) : Value{};
}

Differentiable weighted_xent(bool weighted, double smoothing, bool of_samples = false) {
  CaseBuilder c("weighted_xent", DType::fp64);
  const Value x = c.in("x", {5, 4}, normal(3)), label = c.labels({5}, 4);
  const Value w =
      weighted ? c.make("weights", DType::fp64, {4}, Role::input, uniform(0.2, 4)) : Value{};
  const Value dx = c.out("dx", {5, 4});
  const Value v = sample_weights_of(c, of_samples, 5);
  c.add(SoftmaxXent{x, label, c.tick(), c.loss(), c.correct(), 0.7, w, smoothing, v});
  c.add(SoftmaxXentGrad{x, label, dx, 0.7, {}, w, smoothing, v});
  return {c.done(), 1, c.loss(), {}, {{x, dx}}};
}

// `columns` of 0: labels.
Differentiable elementwise_loss(LossFn fn, int64_t columns, int64_t weights,
                                bool of_samples = false) {
  CaseBuilder c(name(fn), DType::fp64);
  const Value x = c.in("x", {5, 6}, normal(2));
  const Value target = columns == 0 ? c.labels({5}, 6) : c.in("target", {5, columns});
  const Value w = weights > 0
                      ? c.make("weights", DType::fp64, {weights}, Role::input, uniform(0.1, 0.9))
                      : Value{};
  const Value dx = c.out("dx", {5, 6});
  const Value v = sample_weights_of(c, of_samples, 5);
  c.add(ElementwiseLoss{fn, x, target, w, c.tick(), c.loss(), {}, 0.3, 1.3, v});
  c.add(ElementwiseLossGrad{fn, x, target, w, dx, 0.3, 1.3, {}, v});
  return {c.done(), 1, c.loss(), {}, {{x, dx}}};
}

Differentiable group_norm(bool centred, bool affine, int64_t groups, int64_t spatial) {
  CaseBuilder c(centred ? "group_norm" : "rms_norm", DType::fp64);
  const int64_t n = 3, channels = 4, width = channels / groups * spatial;
  const Shape shape{n, channels * spatial}, weights{channels};
  const Value x = c.in("x", shape), y = c.out("y", shape), dy = c.in("dy", shape);
  const Value rstd = c.out("rstd", {n * groups}), dx = c.out("dx", shape);
  const Value mean = centred ? c.out("mean", {n * groups}) : Value{};
  const Value gamma = affine ? c.param("gamma", weights) : Value{};
  const Value beta = affine ? c.param("beta", weights) : Value{};
  const Value dgamma = affine ? c.out("dgamma", weights) : Value{};
  const Value dbeta = affine ? c.out("dbeta", weights) : Value{};
  c.add(GroupNorm{x, gamma, beta, y, mean, rstd, groups, width, spatial, 1e-3, centred});
  c.add(
      GroupNormGrad{x, gamma, mean, rstd, dy, dx, dgamma, dbeta, groups, width, spatial, centred});
  Differentiable d{c.done(), 1, y, dy, {{x, dx}}};
  if (affine) {
    d.wanted.emplace_back(gamma, dgamma);
    d.wanted.emplace_back(beta, dbeta);
  }
  return d;
}

// Two layers with an activation and dropout between them, from the loss down to the input.
Differentiable network(ActivationKind kind) {
  CaseBuilder c("network", DType::fp64);
  const int64_t n = 4, in = 5, hidden = 6, out = 3;
  const Value x = c.in("x", {n, in}), label = c.labels({n}, out);
  const Value w1 = c.param("w1", {hidden, in}), b1 = c.param("b1", {hidden});
  const Value w2 = c.param("w2", {out, hidden}), b2 = c.param("b2", {out});
  const Value z = c.temp("z", {n, hidden}), a = c.temp("a", {n, hidden}),
              y = c.temp("y", {n, hidden});
  const Value logits = c.temp("logits", {n, out}), dlogits = c.temp("dlogits", {n, out});
  const Value dy = c.temp("dy", {n, hidden}), da = c.temp("da", {n, hidden});
  const Value dz = c.temp("dz", {n, hidden}), dx = c.out("dx", {n, in});
  const Value dw1 = c.out("dw1", {hidden, in}), db1 = c.out("db1", {hidden});
  const Value dw2 = c.out("dw2", {out, hidden}), db2 = c.out("db2", {out});
  const DropoutMask mask{.p = 0.3, .seed = 5, .layer = 1, .sample_offset = 0};
  c.add(Linear{x, w1, b1, z});
  c.add(Activation{kind, z, a});
  c.add(Dropout{a, c.step(), c.tick(), y, mask});
  c.add(Linear{y, w2, b2, logits});
  c.add(SoftmaxXent{logits, label, c.tick(), c.loss(), {}, 0.25});
  c.add(SoftmaxXentGrad{logits, label, dlogits, 0.25});
  c.add(LinearGradX{dlogits, w2, dy});
  c.add(LinearGradW{y, dlogits, dw2, db2});
  c.add(Dropout{dy, c.step(), c.tick(), da, mask});
  c.add(ActivationGrad{kind, saves_output(kind) ? a : z, da, dz});
  c.add(LinearGradX{dz, w1, dx});
  c.add(LinearGradW{x, dz, dw1, db1});
  return {c.done(), 5, c.loss(), {}, {{x, dx}, {w1, dw1}, {b1, db1}, {w2, dw2}, {b2, db2}}};
}

// One layer from sum(weight * y) to all its operands. Weights are small enough that relu has no
// corner within the step of a difference.
Differentiable recurrent(CellKind cell, Direction direction, bool lengths, bool states) {
  const RnnShape s{cell, direction, 4, 3, 5, 3};
  CaseBuilder c(fmt::format("{} {}", name(cell), name(direction)), DType::fp64);
  const bool lstm = cell == CellKind::lstm;
  const Value x = c.in("x", s.x()), y = c.out("y", s.y()), dy = c.in("dy", s.y());
  const Value dx = c.out("dx", s.x());
  const Value h0 = states ? c.in("h0", s.state()) : Value{};
  const Value c0 = states && lstm ? c.in("c0", s.state()) : Value{};
  const Value dh0 = states ? c.out("dh0", s.state()) : Value{};
  const Value dc0 = states && lstm ? c.out("dc0", s.state()) : Value{};
  const Value steps =
      lengths ? c.make("lengths", DType::int32, {s.batch}, Role::input, normal(1), 5) : Value{};
  const Value reserve = saved_vectors(cell) > 0 ? c.temp("reserve", s.reserve()) : Value{};
  const Value gradients = c.temp("gate_gradients", s.gate_gradients());
  RnnDirections w, dw;
  std::vector<std::pair<Value, Value>> wanted{{x, dx}};
  for (int64_t d = 0; d < s.directions(); ++d) {
    const auto make = [&](const char* what, const Shape& shape, Value RnnWeights::*member) {
      const Value value = c.param(fmt::format("{}{}", what, d), shape, normal(0.6));
      const Value gradient = c.out(fmt::format("d{}{}", what, d), shape);
      w[size_t(d)].*member = value;
      dw[size_t(d)].*member = gradient;
      wanted.emplace_back(value, gradient);
    };
    make("w_ih", s.w_ih(), &RnnWeights::w_ih);
    make("w_hh", s.w_hh(), &RnnWeights::w_hh);
    make("b_ih", s.bias(), &RnnWeights::b_ih);
    make("b_hh", s.bias(), &RnnWeights::b_hh);
  }
  if (h0) wanted.emplace_back(h0, dh0);
  if (c0) wanted.emplace_back(c0, dc0);
  c.add(Rnn{s, x, w, h0, c0, steps, y, {}, {}, reserve});
  c.add(RnnGrad{s, y, reserve, w, h0, c0, steps, dy, {}, {}, gradients, dh0, dc0});
  c.add(RnnGradX{s, gradients, w, dx});
  c.add(RnnGradW{s, x, y, h0, steps, gradients, dw});
  return {c.done(), 1, y, dy, std::move(wanted)};
}

// The final states' own gradients: sum(weight * hT) or sum(weight * cT).
Differentiable final_state(CellKind cell, bool of_cell) {
  const RnnShape s{cell, Direction::both, 3, 2, 2, 4};
  CaseBuilder c(fmt::format("{} final state", name(cell)), DType::fp64);
  const bool lstm = cell == CellKind::lstm;
  const Value x = c.in("x", s.x()), y = c.temp("y", s.y());
  const Value dy = c.in("dy", s.y(), constant(0));
  const Value hT = c.out("hT", s.state()), cT = lstm ? c.out("cT", s.state()) : Value{};
  const Value weight = c.in("weight", s.state()), dx = c.out("dx", s.x());
  const Value reserve = saved_vectors(cell) > 0 ? c.temp("reserve", s.reserve()) : Value{};
  const Value gradients = c.temp("gate_gradients", s.gate_gradients());
  RnnDirections w;
  for (RnnWeights& each : w) {
    each.w_ih = c.param("w_ih", s.w_ih(), normal(0.6));
    each.w_hh = c.param("w_hh", s.w_hh(), normal(0.6));
  }
  c.add(Rnn{s, x, w, {}, {}, {}, y, hT, cT, reserve});
  c.add(RnnGrad{s,
                y,
                reserve,
                w,
                {},
                {},
                {},
                dy,
                of_cell ? Value{} : weight,
                of_cell ? weight : Value{},
                gradients,
                {},
                {}});
  c.add(RnnGradX{s, gradients, w, dx});
  return {c.done(), 1, of_cell ? cT : hT, weight, {{x, dx}}};
}

Differentiable embedding() {
  CaseBuilder c("embedding", DType::fp64);
  const Value token = c.make("token", DType::int32, {9}, Role::input, normal(1), 4);
  const Value w = c.param("w", {4, 3}), y = c.out("y", {9, 3}), dy = c.in("dy", {9, 3});
  const Value dw = c.out("dw", {4, 3});
  c.add(Embedding{token, w, y});
  c.add(EmbeddingGrad{token, dy, dw});
  return {c.done(), 1, y, dy, {{w, dw}}};
}

Differentiable one_hot_conv(bool bias) {
  CaseBuilder c("one_hot_conv1d", DType::fp64);
  const Value token = c.make("token", DType::int32, {3, 7}, Role::input, normal(1), 5);
  const Value w = c.param("w", {2, 4, 3}), b = bias ? c.param("b", {2}) : Value{};
  const Value y = c.out("y", {3, 2 * 5}), dy = c.in("dy", {3, 2 * 5});
  const Value dw = c.out("dw", {2, 4, 3}), db = bias ? c.out("db", {2}) : Value{};
  c.add(OneHotConv1d{token, w, b, y});
  c.add(OneHotConv1dGradW{token, dy, dw, db});
  Differentiable d{c.done(), 1, y, dy, {{w, dw}}};
  if (bias) d.wanted.push_back({b, db});
  return d;
}

Differentiable select_timestep(int64_t at) {
  CaseBuilder c("select_timestep", DType::fp64);
  const Value x = c.in("x", {3, 4, 2}), y = c.out("y", {3, 2}), dy = c.in("dy", {3, 2});
  const Value lengths = c.make("lengths", DType::int32, {3}, Role::input, normal(1), 5);
  const Value dx = c.out("dx", {3, 4, 2});
  c.add(SelectTimestep{4, at, x, lengths, y});
  c.add(SelectTimestepGrad{4, at, dy, lengths, dx});
  return {c.done(), 1, y, dy, {{x, dx}}};
}

constexpr CellKind kCells[] = {CellKind::rnn_relu, CellKind::rnn_tanh, CellKind::gru,
                               CellKind::lstm};

TEST(Gradient, Recurrent) {
  for (const CellKind cell : kCells) {
    for (const Direction direction : {Direction::forward, Direction::reverse, Direction::both}) {
      for (const bool lengths : {false, true}) {
        for (const bool states : {false, true}) {
          EXPECT_TRUE(gradients_agree(recurrent(cell, direction, lengths, states)))
              << name(cell) << " " << name(direction) << " " << lengths << states;
        }
      }
    }
  }
}

TEST(Gradient, RecurrentFinalStates) {
  for (const CellKind cell : kCells) {
    EXPECT_TRUE(gradients_agree(final_state(cell, false))) << name(cell);
  }
  EXPECT_TRUE(gradients_agree(final_state(CellKind::lstm, true)));
}

TEST(Gradient, EmbeddingAndSelectedSteps) {
  EXPECT_TRUE(gradients_agree(embedding()));
  for (const int64_t at : {-1, 0, 2}) EXPECT_TRUE(gradients_agree(select_timestep(at))) << at;
}

TEST(Gradient, OneHotConvolution) {
  for (const bool bias : {true, false}) EXPECT_TRUE(gradients_agree(one_hot_conv(bias))) << bias;
}

TEST(Gradient, Linear) {
  for (const bool bias : {true, false}) {
    EXPECT_TRUE(gradients_agree(linear(bias, 4, 5, 3)));
    EXPECT_TRUE(gradients_agree(linear(bias, 1, 1, 1)));
    EXPECT_TRUE(gradients_agree(linear(bias, 7, 2, 6)));
  }
}

TEST(Gradient, Activations) {
  for (const ActivationKind kind : kActivations) {
    EXPECT_TRUE(gradients_agree(activation(kind))) << name(kind);
  }
}

TEST(Gradient, FunctionsOfOneNumber) {
  for (const UnaryKind kind : kUnaryKinds) EXPECT_TRUE(gradients_agree(unary(kind))) << name(kind);
}

TEST(Gradient, Dropout) {
  for (const double p : {0.0, 0.3, 0.9}) EXPECT_TRUE(gradients_agree(dropout(p))) << p;
}

TEST(Gradient, Losses) {
  EXPECT_TRUE(gradients_agree(softmax_xent(6, 5)));
  EXPECT_TRUE(gradients_agree(softmax_xent(1, 2)));
  EXPECT_TRUE(gradients_agree(mse(true)));
  EXPECT_TRUE(gradients_agree(mse(false)));
  EXPECT_TRUE(gradients_agree(weighted_xent(true, 0)));
  EXPECT_TRUE(gradients_agree(weighted_xent(true, 0.2)));
  EXPECT_TRUE(gradients_agree(weighted_xent(false, 0.2)));
  EXPECT_TRUE(gradients_agree(weighted_xent(false, 0, true)));
  EXPECT_TRUE(gradients_agree(weighted_xent(true, 0.2, true)));
  for (const LossFn fn : kLossFns) {
    const int64_t weights = fn == LossFn::quantile ? 1 : 0;
    EXPECT_TRUE(gradients_agree(elementwise_loss(fn, 6, weights))) << name(fn);
    EXPECT_TRUE(gradients_agree(elementwise_loss(fn, 0, weights))) << name(fn);
    EXPECT_TRUE(gradients_agree(elementwise_loss(fn, 6, weights, true))) << name(fn);
  }
  EXPECT_TRUE(gradients_agree(elementwise_loss(LossFn::bce_with_logits, 6, 1)));
  EXPECT_TRUE(gradients_agree(elementwise_loss(LossFn::bce_with_logits, 6, 6)));
  EXPECT_TRUE(gradients_agree(elementwise_loss(LossFn::quantile, 2, 3)));
}

TEST(Gradient, GroupNorms) {
  for (const bool centred : {true, false}) {
    for (const bool affine : {true, false}) {
      EXPECT_TRUE(gradients_agree(group_norm(centred, affine, 2, 3)));
      EXPECT_TRUE(gradients_agree(group_norm(centred, affine, 4, 2)));
      EXPECT_TRUE(gradients_agree(group_norm(centred, affine, 1, 1)));
    }
  }
}

TEST(Gradient, NetworkFromLossToInput) {
  for (const ActivationKind kind : kActivations) {
    EXPECT_TRUE(gradients_agree(network(kind))) << name(kind);
  }
}

// The check itself must detect a gradient that is wrong in a single element.
TEST(GradientControl, ASlightlyWrongGradientFails) {
  for (const Differentiable& d :
       {linear(true, 4, 5, 3), activation(ActivationKind::gelu), dropout(0.3), softmax_xent(6, 5),
        mse(true), mse(false), weighted_xent(true, 0.2), elementwise_loss(LossFn::quantile, 2, 3),
        group_norm(true, true, 2, 3), group_norm(false, true, 1, 1),
        recurrent(CellKind::gru, Direction::both, true, true),
        recurrent(CellKind::lstm, Direction::reverse, true, true), embedding(),
        select_timestep(-1)}) {
    expect_slips_noticed(d);
  }
}

TEST(GradientControl, TheDerivativeAtTheWrongPlaceFails) {
  CaseBuilder c("tanh' at the input", DType::fp64);
  const Value x = c.in("x", {5, 7}), y = c.out("y", {5, 7});
  const Value dy = c.in("dy", {5, 7}), dx = c.out("dx", {5, 7});
  c.add(Activation{ActivationKind::tanh, x, y});
  c.add(ActivationGrad{ActivationKind::tanh, x, dy, dx});
  EXPECT_FALSE(gradients_agree({c.done(), 1, y, dy, {{x, dx}}}));
}

TEST(GradientControl, AnotherStepsDropoutMaskFails) {
  CaseBuilder c("dropout of another layer", DType::fp64);
  const Value x = c.in("x", {5, 7}), y = c.out("y", {5, 7});
  const Value dy = c.in("dy", {5, 7}), dx = c.out("dx", {5, 7});
  c.add(Dropout{x, c.step(), c.tick(), y, {.p = 0.5, .seed = 5, .layer = 1, .sample_offset = 0}});
  c.add(Dropout{dy, c.step(), c.tick(), dx, {.p = 0.5, .seed = 5, .layer = 2, .sample_offset = 0}});
  EXPECT_FALSE(gradients_agree({c.done(), 1, y, dy, {{x, dx}}}));
}

}  // namespace
}  // namespace ridgeline::test
