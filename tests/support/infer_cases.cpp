#include <fmt/format.h>

#include <cmath>

#include "tests/support/cases.h"

namespace ridgeline::test {
namespace {

// How a net begins: with bytes that are scaled, with floats, or with codes of an embedding.
enum class Begin { bytes, floats, codes };

// A network built value by value, as lowering for inference writes it.
class Net {
 public:
  Net(std::string name, int64_t samples, DType dtype = DType::fp32)
      : c_(std::move(name), dtype), n_(samples) {}

  // `in_order`: the samples of a batch follow each other in the set, as those of a prediction do.
  void gather(Begin begin, int64_t width, bool in_order = false) {
    const int64_t orders = 4 * n_ + 3, samples = in_order ? orders : 11;
    const bool floats = begin == Begin::floats;
    const Value set = c_.make("set", floats ? DType::fp32 : DType::uint8, {samples, width},
                              Role::input, normal(1), begin == Begin::codes ? kCodes : 256);
    const Value order = c_.make("order", DType::int32, {orders}, Role::input,
                                in_order ? counting() : normal(1), samples);
    const Value first = c_.make("first", DType::int64, {1}, Role::input, constant(2));
    Gather op{set, order, first, c_.tick(), {}};
    if (begin == Begin::codes) {
      op.y = c_.make("x0", DType::int32, {n_, width}, Role::temp, normal(1), kCodes);
    } else {
      op.y = c_.temp("x0", {n_, width});
    }
    if (begin == Begin::bytes) {
      op.scale = 1.0 / 255;
      op.shift = -0.5;
    }
    c_.add(op);
    x_ = op.y;
  }
  void embed(int64_t width) {
    const Value w = c_.param(named("embedding"), {kCodes, width});
    Value y = c_.temp(named("x"), {x_.shape.numel(), width});
    c_.add(Embedding{x_, w, y});
    y.shape = {n_, x_.shape.numel() / n_ * width};
    x_ = y;
  }
  void linear(int64_t out, bool bias = true, bool kept = false) {
    const int64_t in = x_.shape.numel() / x_.shape[0];
    const Value w = c_.param(named("w"), {out, in}, normal(1 / std::sqrt(double(in))));
    const Value b = bias ? c_.param(named("b"), {out}) : Value{};
    const Shape shape{x_.shape[0], out};
    const Value y = kept ? c_.out(named("kept"), shape) : c_.temp(named("x"), shape);
    c_.add(Linear{x_, w, b, y});
    x_ = y;
  }
  void activation(ActivationKind kind) {
    const Value y = c_.temp(named("x"), x_.shape);
    c_.add(Activation{kind, x_, y});
    x_ = y;
  }
  // `carried`: begins with a state, and a copy at the end keeps the final one.
  void recurrent(CellKind cell, int64_t steps, int64_t hidden, bool carried, bool bias = true) {
    const RnnShape s{cell, Direction::forward, steps, n_, x_.shape.numel() / n_ / steps, hidden};
    RnnDirections w;
    w[0].w_ih = c_.param(named("w_ih"), s.w_ih(), normal(1 / std::sqrt(double(s.in))));
    w[0].w_hh = c_.param(named("w_hh"), s.w_hh(), normal(1.2 / double(hidden)));
    if (bias) {
      w[0].b_ih = c_.param(named("b_ih"), s.bias(), normal(0.5));
      w[0].b_hh = c_.param(named("b_hh"), s.bias(), normal(0.5));
    }
    Value x = x_;
    x.shape = s.x();
    Rnn op{s, x, w, {}, {}, {}, c_.temp(named("x"), s.y()), {}, {}, {}};
    if (carried) {
      op.h0 = c_.state(named("h"), s.state(), normal(0.5));
      op.hT = c_.temp(named("hT"), s.state());
      copies_.push_back({op.hT, op.h0});
      if (cell == CellKind::lstm) {
        op.c0 = c_.state(named("c"), s.state());
        op.cT = c_.temp(named("cT"), s.state());
        copies_.push_back({op.cT, op.c0});
      }
    }
    c_.add(op);
    x_ = op.y;
    x_.shape = {n_, steps * hidden};
  }
  void select(int64_t steps, int64_t at) {
    Value x = x_;
    const int64_t width = x_.shape[1] / steps;
    x.shape = {n_, steps, width};
    x_ = c_.temp(named("x"), {n_, width});
    c_.add(SelectTimestep{steps, at, x, {}, x_});
  }
  enum class End { softmax, softmax_argmax, copy, sigmoid };
  Case done(End end) {
    const Value y = c_.out("outputs", x_.shape);
    if (end == End::copy) {
      c_.add(Copy{x_, y});
    } else if (end == End::sigmoid) {
      c_.add(Activation{ActivationKind::sigmoid, x_, y});
    } else {
      c_.add(Softmax{x_, y});
    }
    if (end == End::softmax_argmax) {
      const Value labels =
          c_.make("labels", DType::int32, {x_.shape[0]}, Role::output, normal(1), x_.shape[1]);
      c_.add(Argmax{y, labels});
    }
    for (const Copy& copy : copies_) c_.add(copy);
    c_.add(Tick{c_.tick()});
    return c_.done();
  }

 private:
  static constexpr int64_t kCodes = 9;
  std::string named(const char* what) { return fmt::format("{}{}", what, count_++); }

  CaseBuilder c_;
  int64_t n_;
  Value x_;
  std::vector<Copy> copies_;
  int count_ = 1;
};

void add_perceptrons(Cases& all) {
  // Widths: one, primes, and one more and one less than the vectors and panels of every instruction
  // set.
  constexpr int64_t kWidths[][4] = {
      {1, 1, 1, 1}, {7, 5, 3, 2}, {36, 17, 16, 10}, {15, 64, 65, 63}, {129, 33, 47, 31}};
  // Batches: whole and partial tiles, one chunk and several per thread.
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 13, 48, 97, 211}) {
    for (const auto& [in, first, second, out] : kWidths) {
      Net net(fmt::format("inference {}x{}-{}-{}-{}", n, in, first, second, out), n);
      net.gather(n % 2 == 0 ? Begin::bytes : Begin::floats, in);
      net.linear(first);
      net.activation(ActivationKind::relu);
      net.linear(second, /*bias=*/false);
      net.activation(n == 3 ? ActivationKind::gelu : ActivationKind::tanh);
      net.linear(out);
      all.push_back(net.done(n == 1 || n == 13   ? Net::End::softmax_argmax
                             : n == 4 || n == 48 ? Net::End::copy
                             : n == 5 || n == 97 ? Net::End::sigmoid
                                                 : Net::End::softmax));
    }
  }
  Net kept("inference with an inner value kept", 2);
  kept.gather(Begin::floats, 19);
  kept.linear(21, true, /*kept=*/true);
  kept.activation(ActivationKind::relu);
  kept.linear(5);
  all.push_back(kept.done(Net::End::softmax));
}

// Layers that take several passes over their inputs.
void add_deep_perceptron(Cases& all) {
  for (const bool in_order : {false, true}) {
    Net net(fmt::format("inference 31x2051-67-9{}", in_order ? " in order" : ""), 31);
    net.gather(Begin::floats, 2051, in_order);
    net.linear(67);
    net.activation(ActivationKind::relu);
    net.linear(9);
    all.push_back(net.done(Net::End::softmax));
  }
}

// A layer whose weights exceed the caches near a core.
void add_wide_perceptron(Cases& all) {
  for (const int64_t n : {1, 2}) {
    Net net(fmt::format("inference {}x1031-1043-5", n), n);
    net.gather(Begin::floats, 1031);
    net.linear(1043);
    net.activation(ActivationKind::relu);
    net.linear(5);
    all.push_back(net.done(Net::End::copy));
  }
}

void add_recurrent(Cases& all) {
  for (const CellKind cell :
       {CellKind::rnn_relu, CellKind::rnn_tanh, CellKind::gru, CellKind::lstm}) {
    for (const auto& [n, steps, in, hidden] : {std::array<int64_t, 4>{1, 1, 1, 1},
                                               {1, 1, 7, 33},
                                               {3, 1, 16, 16},
                                               {8, 1, 5, 17},
                                               {2, 5, 4, 19},
                                               {5, 3, 31, 15},
                                               {2, 21, 6, 83}}) {
      for (const bool carried : {true, false}) {
        Net net(fmt::format("inference {} {}x{} {}-{}{}", name(cell), n, steps, in, hidden,
                            carried ? " carried" : ""),
                n);
        net.gather(n == 3 ? Begin::codes : Begin::bytes, n == 3 ? steps : steps * in);
        if (n == 3) net.embed(in);
        net.recurrent(cell, steps, hidden, carried, n != 8);
        net.recurrent(cell, steps, hidden + 1, carried);
        net.select(steps, n == 5 ? 1 : -1);
        net.linear(3);
        all.push_back(net.done(n == 2 ? Net::End::copy : Net::End::softmax));
      }
    }
  }
}

}  // namespace

Case inference_case(int64_t n, const std::vector<int64_t>& widths, DType dtype) {
  Net net(fmt::format("inference of {} by {} layers", n, widths.size() - 1), n, dtype);
  net.gather(Begin::bytes, widths[0]);
  for (size_t l = 1; l < widths.size(); ++l) {
    net.linear(widths[l]);
    if (l + 1 < widths.size()) net.activation(ActivationKind::relu);
  }
  return net.done(Net::End::softmax_argmax);
}

std::vector<Case> inference_cases() {
  Cases all;
  add_perceptrons(all);
  add_deep_perceptron(all);
  add_wide_perceptron(all);
  add_recurrent(all);
  return all;
}

}  // namespace ridgeline::test
