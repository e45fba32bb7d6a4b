#include <fmt/format.h>

#include <cmath>

#include "tests/support/cases.h"

namespace ridgeline::test {
namespace {

constexpr CellKind kCells[] = {CellKind::rnn_relu, CellKind::rnn_tanh, CellKind::gru,
                               CellKind::lstm};
constexpr Direction kDirections[] = {Direction::forward, Direction::reverse, Direction::both};

// The operands of an op beside its sequence.
struct Extras {
  bool bias = true, states = false, lengths = false;
  bool final_states = false;  // hT, cT and their gradients
  bool mixed = false;         // for half types: biases and gradients of weights in fp32
};

// T, B, in, H: ones, primes, tails of a vector and of a panel of the batch.
struct Sizes {
  int64_t steps, batch, in, hidden;
  Extras extras;
};
constexpr Sizes kSizes[] = {
    {1, 1, 1, 1, {}},
    {1, 5, 3, 7, {true, true, false, true}},
    {5, 3, 4, 6, {true, false, true, false}},
    {4, 33, 7, 5, {false, true, true, true}},
    {3, 2, 17, 33, {true, true, true, true}},
    {6, 17, 16, 16, {true, false, false, true}},
    {3, 9, 8, 24, {true, true, false, true, true}},
    {19, 35, 3, 5, {true, true, true, true}},  // more timesteps than threads start at once
    {1, 33, 2, 17, {true, false, false, true}},
    {2, 17, 33, 100, {true, true, true, true}},
    {3, 131, 5, 18, {true, true, false, true}},  // several chunks per thread
};

class RnnCase {
 public:
  RnnCase(const std::string& what, DType dtype, const RnnShape& shape, const Extras& extras)
      : c(fmt::format("{} {}{}{}{}{}", what, shape.text(), extras.bias ? "" : " no bias",
                      extras.states ? " states" : "", extras.lengths ? " lengths" : "",
                      extras.mixed ? " mixed" : ""),
          dtype),
        s(shape),
        extras(extras) {
    if (extras.states) {
      h0 = c.in("h0", s.state(), normal(0.5));
      if (s.cell == CellKind::lstm) c0 = c.in("c0", s.state());
    }
    if (extras.lengths) {
      lengths = c.make("lengths", DType::int32, {s.batch}, Role::input, normal(1), s.steps + 1);
    }
  }

  // Rows of weights that sum to about one, so that errors neither vanish nor explode.
  RnnDirections weights(const std::string& layer = "") {
    RnnDirections all;
    for (int64_t d = 0; d < s.directions(); ++d) {
      RnnWeights& w = all[size_t(d)];
      w.w_ih =
          c.param(fmt::format("{}w_ih{}", layer, d), s.w_ih(), normal(1 / std::sqrt(double(s.in))));
      w.w_hh = c.param(fmt::format("{}w_hh{}", layer, d), s.w_hh(), normal(1.2 / double(s.hidden)));
      if (!extras.bias) continue;
      const auto bias = [&](const char* name) {
        const std::string full = fmt::format("{}{}{}", layer, name, d);
        return extras.mixed ? c.accumulator(full, s.bias(), Role::param, normal(0.5))
                            : c.param(full, s.bias(), normal(0.5));
      };
      w.b_ih = bias("b_ih");
      w.b_hh = bias("b_hh");
    }
    return all;
  }
  RnnDirections gradients() {
    RnnDirections all;
    for (int64_t d = 0; d < s.directions(); ++d) {
      RnnWeights& w = all[size_t(d)];
      const auto gradient = [&](const char* name, const Shape& shape) {
        const std::string full = fmt::format("{}{}", name, d);
        return extras.mixed ? c.accumulator(full, shape, Role::output) : c.out(full, shape);
      };
      w.w_ih = gradient("dw_ih", s.w_ih());
      w.w_hh = gradient("dw_hh", s.w_hh());
      if (!extras.bias) continue;
      w.b_ih = gradient("db_ih", s.bias());
      w.b_hh = gradient("db_hh", s.bias());
    }
    return all;
  }
  Value final_in(const char* name, bool wanted = true) {
    return extras.final_states && wanted ? c.in(name, s.state()) : Value{};
  }
  Value final_out(const std::string& name, bool wanted = true) {
    return extras.final_states && wanted ? c.out(name, s.state()) : Value{};
  }
  bool lstm() const { return s.cell == CellKind::lstm; }

  CaseBuilder c;
  RnnShape s;
  Extras extras;
  Value h0, c0, lengths;
};

// Forward, then the whole backward pass. `kept`: the gate gradients can be read from outside.
Case recurrent_training_case(DType dtype, const RnnShape& shape, const Extras& extras, bool kept,
                             bool needs_dx) {
  RnnCase r(kept ? "rnn training, kept" : "rnn training", dtype, shape, extras);
  const bool saves = saved_vectors(shape.cell) > 0;
  const Value x = r.c.in("x", shape.x()), y = r.c.temp("y", shape.y());
  const Value reserve = saves ? r.c.temp("reserve", shape.reserve()) : Value{};
  const RnnDirections weights = r.weights();
  r.c.add(Rnn{shape, x, weights, r.h0, r.c0, r.lengths, y, r.final_out("hT"),
              r.final_out("cT", r.lstm()), reserve});
  const Value dy = r.c.in("dy", shape.y());
  const Value gradients = kept ? r.c.out("gate_gradients", shape.gate_gradients())
                               : r.c.temp("gate_gradients", shape.gate_gradients());
  r.c.add(RnnGrad{shape, y, reserve, weights, r.h0, r.c0, r.lengths, dy, r.final_in("dhT"),
                  r.final_in("dcT", r.lstm()), gradients, r.final_out("dh0"),
                  r.final_out("dc0", r.lstm())});
  if (needs_dx) r.c.add(RnnGradX{shape, gradients, weights, r.c.out("dx", shape.x())});
  r.c.add(RnnGradW{shape, x, y, r.h0, r.lengths, gradients, r.gradients()});
  return r.c.done();
}

Case forward_case(DType dtype, const RnnShape& shape, const Extras& extras) {
  RnnCase r("rnn", dtype, shape, extras);
  const Value x = r.c.in("x", shape.x()), y = r.c.out("y", shape.y());
  r.c.add(Rnn{shape,
              x,
              r.weights(),
              r.h0,
              r.c0,
              r.lengths,
              y,
              r.final_out("hT"),
              r.final_out("cT", r.lstm()),
              {}});
  return r.c.done();
}

// A classifier of sequences by one of their timesteps, with its loss and whole backward pass.
Case classifier_case(DType dtype, const RnnShape& shape, const Extras& extras, int64_t at,
                     int64_t classes, bool updated) {
  RnnCase r(fmt::format("rnn classifier of {} at {}{}", classes, at, updated ? " sgd" : ""), dtype,
            shape, extras);
  CaseBuilder& c = r.c;
  const int64_t n = shape.batch, H = shape.hidden;
  const double scale = 1 / double(n);
  const bool saves = saved_vectors(shape.cell) > 0;
  const Value x = c.in("x", shape.x()), y = c.temp("y", shape.y());
  const Value reserve = saves ? c.temp("reserve", shape.reserve()) : Value{};
  const RnnDirections weights = r.weights();
  const Value w = c.param("w", {classes, H}, normal(1 / std::sqrt(double(H))));
  const Value b = extras.bias ? c.param("b", {classes}) : Value{};
  const Value label = c.labels({n}, classes);
  const Value h = c.temp("h", {n, H}), logits = c.temp("logits", {n, classes});
  const Value dlogits = c.temp("dlogits", {n, classes}), dh = c.temp("dh", {n, H});
  const Value dy = c.temp("dy", shape.y());
  const Value gradients = c.temp("gate_gradients", shape.gate_gradients());
  c.add(Rnn{shape,
            x,
            weights,
            r.h0,
            r.c0,
            {},
            y,
            r.final_out("hT"),
            r.final_out("cT", r.lstm()),
            reserve});
  c.add(SelectTimestep{shape.steps, at, y, {}, h});
  c.add(Linear{h, w, b, logits});
  c.add(SoftmaxXent{logits, label, c.tick(), c.loss(), c.correct(), scale});
  c.add(SoftmaxXentGrad{logits, label, dlogits, scale});
  c.add(LinearGradX{dlogits, w, dh});
  const Value dw = c.out("dw", {classes, H}), db = b ? c.out("db", {classes}) : Value{};
  c.add(LinearGradW{h, dlogits, dw, db});
  if (updated) c.add_update("momentum", w, dw);
  if (updated && b) c.add_update("momentum", b, db);
  c.add(SelectTimestepGrad{shape.steps, at, dh, {}, dy});
  c.add(RnnGrad{shape,
                y,
                reserve,
                weights,
                r.h0,
                r.c0,
                {},
                dy,
                r.final_in("dhT"),
                r.final_in("dcT", r.lstm()),
                gradients,
                r.final_out("dh0"),
                r.final_out("dc0", r.lstm())});
  c.add(RnnGradW{shape, x, y, r.h0, {}, gradients, r.gradients()});
  return c.done();
}

// Stacked layers, each with a reserve.
Case stack_case(DType dtype, const RnnShape& shape, const Extras& extras, int64_t layers) {
  RnnCase r("rnn stack", dtype, shape, extras);
  const bool saves = saved_vectors(shape.cell) > 0;
  Value x = r.c.in("x", shape.x());
  for (int64_t layer = 0; layer < layers; ++layer) {
    r.s.in = layer == 0 ? shape.in : shape.hidden;
    const std::string name = fmt::format("{}.", layer);
    const Value y = r.c.out(name + "y", shape.y());
    r.c.add(Rnn{r.s, x, r.weights(name), r.h0, r.c0, r.lengths, y, r.final_out(name + "hT"),
                r.final_out(name + "cT", r.lstm()),
                saves ? r.c.out(name + "reserve", shape.reserve()) : Value{}});
    x = y;
  }
  return r.c.done();
}

// Each backward op alone, on a reserve of numbers that gates can have.
void add_backward(Cases& all, DType dtype, const RnnShape& shape) {
  const Extras extras{true, true, true, true};
  RnnCase grad("rnn_grad", dtype, shape, extras);
  const Value y = grad.c.in("y", shape.y(), uniform(-1, 1));
  const Value reserve = saved_vectors(shape.cell) > 0
                            ? grad.c.in("reserve", shape.reserve(), uniform(0.1, 0.9))
                            : Value{};
  RnnDirections weights = grad.weights();
  for (RnnWeights& w : weights) w.w_ih = w.b_ih = w.b_hh = {};
  const Value dy = grad.c.in("dy", shape.y());
  grad.c.add(RnnGrad{shape, y, reserve, weights, grad.h0, grad.c0, grad.lengths, dy,
                     grad.final_in("dhT"), grad.final_in("dcT", grad.lstm()),
                     grad.c.out("gate_gradients", shape.gate_gradients()), grad.final_out("dh0"),
                     grad.final_out("dc0", grad.lstm())});
  all.push_back(grad.c.done());

  RnnCase grad_x("rnn_grad_x", dtype, shape, Extras{});
  const Value gx = grad_x.c.in("gate_gradients", shape.gate_gradients());
  grad_x.c.add(RnnGradX{shape, gx, grad_x.weights(), grad_x.c.out("dx", shape.x())});
  all.push_back(grad_x.c.done());

  // Without lengths: with them the gate gradients of the padding are zero, as RnnGrad leaves them.
  RnnCase grad_w("rnn_grad_w", dtype, shape, {true, true, false, true});
  const Value x = grad_w.c.in("x", shape.x()), yw = grad_w.c.in("y", shape.y());
  const Value gw = grad_w.c.in("gate_gradients", shape.gate_gradients());
  grad_w.c.add(RnnGradW{shape, x, yw, grad_w.h0, grad_w.lengths, gw, grad_w.gradients()});
  all.push_back(grad_w.c.done());
}

void add_embedding(Cases& all, DType dtype) {
  constexpr int64_t kShapes[][3] = {
      {1, 1, 1}, {7, 5, 3}, {64, 65, 33}, {300, 10, 128}, {2100, 3, 37}};
  for (const auto& [count, vocabulary, width] : kShapes) {
    CaseBuilder c(fmt::format("embedding {} of {} x {}", count, vocabulary, width), dtype);
    const Value token = c.make("token", DType::int32, {count}, Role::input, normal(1), vocabulary);
    const Value w = c.param("w", {vocabulary, width});
    c.add(Embedding{token, w, c.out("y", {count, width})});
    all.push_back(c.done());

    CaseBuilder g(fmt::format("embedding_grad {} of {} x {}", count, vocabulary, width), dtype);
    const Value tokens = g.make("token", DType::int32, {count}, Role::input, normal(1), vocabulary);
    const Value dy = g.in("dy", {count, width});
    g.add(EmbeddingGrad{tokens, dy, g.out("dw", {vocabulary, width})});
    all.push_back(g.done());
  }
}

void add_select(Cases& all, DType dtype) {
  for (const bool ragged : {false, true}) {
    for (const int64_t at : {-1, 0, 2}) {
      const int64_t batch = 5, steps = 4, width = 7;
      CaseBuilder c(fmt::format("select_timestep {}{}", at, ragged ? " lengths" : ""), dtype);
      const auto lengths = [&](CaseBuilder& builder) {
        return ragged ? builder.make("lengths", DType::int32, {batch}, Role::input, normal(1),
                                     steps + 1)
                      : Value{};
      };
      const Value x = c.in("x", {batch, steps, width});
      c.add(SelectTimestep{steps, at, x, lengths(c), c.out("y", {batch, width})});
      all.push_back(c.done());
      CaseBuilder g(fmt::format("select_timestep_grad {}{}", at, ragged ? " lengths" : ""), dtype);
      const Value dy = g.in("dy", {batch, width});
      g.add(SelectTimestepGrad{steps, at, dy, lengths(g), g.out("dx", {batch, steps, width})});
      all.push_back(g.done());
    }
  }
  CaseBuilder c("copy", dtype);
  const Value from = c.in("from", {3, 37});
  c.add(Copy{from, c.state("to", {3, 37})});
  all.push_back(c.done());
}

}  // namespace

std::vector<Case> recurrent_op_cases(DType dtype) {
  Cases all;
  for (const CellKind cell : kCells) {
    add_backward(all, dtype, {cell, Direction::both, 3, 4, 5, 3});
    all.push_back(
        forward_case(dtype, {cell, Direction::both, 3, 5, 4, 9}, {true, true, true, true}));
    all.push_back(forward_case(dtype, {cell, Direction::forward, 2, 40, 11, 20}, {}));
  }
  for (const CellKind cell : kCells) {
    all.push_back(stack_case(dtype, {cell, Direction::forward, 4, 5, 6, 11}, {}, 3));
    all.push_back(
        stack_case(dtype, {cell, Direction::forward, 5, 19, 3, 40}, {true, true, true, true}, 2));
  }
  add_embedding(all, dtype);
  add_select(all, dtype);
  return all;
}

std::vector<Case> wide_recurrent_cases(DType dtype) {
  constexpr Sizes kWide[] = {{5, 1, 40, 64, {true, true, false, true}},
                             {7, 16, 24, 129, {true, true, true, true}},
                             {4, 37, 8, 160, {true, false, true, true, true}},
                             {2, 65, 16, 136, {true, true, true, true}}};
  Cases all;
  for (const CellKind cell : kCells) {
    for (const Sizes& z : kWide) {
      const Direction direction = z.hidden % 32 == 0 ? Direction::forward : Direction::both;
      const RnnShape shape{cell, direction, z.steps, z.batch, z.in, z.hidden};
      all.push_back(recurrent_training_case(dtype, shape, z.extras, z.batch > 1, true));
    }
    all.push_back(
        stack_case(dtype, {cell, Direction::forward, 6, 37, 24, 136}, {true, true, true, true}, 3));
  }
  // More than two panels of 16 samples per block.
  all.push_back(recurrent_training_case(dtype, {CellKind::lstm, Direction::forward, 2, 340, 8, 128},
                                        {true, true, true, true}, true, true));
  // More units than one form of the wgmma products takes, and more samples than one of its panels.
  for (const auto& [cell, hidden] : {std::pair{CellKind::gru, 264}, {CellKind::lstm, 520}}) {
    all.push_back(recurrent_training_case(dtype, {cell, Direction::forward, 2, 33, 4, hidden},
                                          {true, true, true, true}, false, false));
  }
  all.push_back(stack_case(dtype, {CellKind::lstm, Direction::forward, 2, 33, 4, 264},
                           {true, true, true, true}, 2));
  return all;
}

std::vector<Case> long_recurrent_cases(DType dtype) {
  Cases all;
  for (const CellKind cell : {CellKind::rnn_tanh, CellKind::gru, CellKind::lstm}) {
    all.push_back(recurrent_training_case(dtype, {cell, Direction::both, 40, 33, 50, 60},
                                          {true, true, true, true}, false, true));
  }
  return all;
}

Case large_rnn_case(DType dtype, CellKind cell, int64_t steps, int64_t batch, int64_t hidden) {
  const RnnShape shape{cell, Direction::reverse, steps, batch, 4, hidden};
  return forward_case(dtype, shape, {true, true, true, true});
}

Case large_rnn_training_case(DType dtype, CellKind cell, int64_t steps, int64_t batch,
                             int64_t hidden) {
  const RnnShape shape{cell, Direction::reverse, steps, batch, 4, hidden};
  return recurrent_training_case(dtype, shape, {true, true, true, true}, true, true);
}

std::vector<Case> recurrent_cases(DType dtype) {
  Cases all;
  for (const CellKind cell : kCells) {
    for (const Direction direction : kDirections) {
      for (const Sizes& z : kSizes) {
        const RnnShape shape{cell, direction, z.steps, z.batch, z.in, z.hidden};
        all.push_back(
            recurrent_training_case(dtype, shape, z.extras, z.batch % 2 == 0, z.batch != 3));
      }
    }
    all.push_back(classifier_case(dtype, {cell, Direction::forward, 1, 1, 1, 1}, {}, -1, 2, false));
    all.push_back(classifier_case(dtype, {cell, Direction::forward, 5, 33, 28, 17},
                                  {true, true, false, true}, -1, 10, true));
    all.push_back(classifier_case(dtype, {cell, Direction::reverse, 4, 5, 3, 70}, {false, false}, 2,
                                  32, false));
    all.push_back(classifier_case(dtype, {cell, Direction::forward, 3, 4, 40, 150}, {true, true},
                                  -2, 16, true));
  }
  return all;
}

}  // namespace ridgeline::test
