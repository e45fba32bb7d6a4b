#include <fmt/format.h>

#include <cmath>

#include "tests/support/conv_cases.h"

namespace ridgeline::test {
namespace {

constexpr int64_t kFusedShapes[][3] = {
    {1, 1, 1}, {1, 37, 10}, {5, 17, 13}, {32, 64, 48}, {33, 100, 31}};

Fill weights(int64_t in) { return normal(1 / std::sqrt(double(in))); }

// `kept`: the linear's output is read later, so that a kernel may not skip it.
void add_linear_activation(Cases& all, DType dtype) {
  for (const auto& [n, in, out] : kFusedShapes) {
    for (const ActivationKind kind : kActivations) {
      for (const bool kept : {false, true}) {
        CaseBuilder c(
            fmt::format("linear+{} {}x{}->{}{}", name(kind), n, in, out, kept ? " kept" : ""),
            dtype);
        const Value x = c.in("x", {n, in}), w = c.param("w", {out, in}, weights(in));
        const Value b = n != 5 ? c.param("b", {out}) : Value{};
        const Value z = kept ? c.out("z", {n, out}) : c.temp("z", {n, out});
        c.add(Linear{x, w, b, z});
        c.add(Activation{kind, z, c.out("y", {n, out})});
        all.push_back(c.done());
      }
    }
  }
}

// Consecutive layers. `kept`: the second one's input is read outside, so that a kernel writes it.
void add_linear_chain(Cases& all, DType dtype) {
  for (const int64_t n : {1, 5, 33, 300}) {
    for (const bool kept : {false, true}) {
      CaseBuilder c(fmt::format("linear_chain {}{}", n, kept ? " kept" : ""), dtype);
      const auto layer = [&](const char* at, const Value& x, int64_t out, const Value& y) {
        const int64_t in = x.shape[1];
        const Value b = n != 5 ? c.param(fmt::format("b{}", at), {out}) : Value{};
        c.add(Linear{x, c.param(fmt::format("w{}", at), {out, in}, weights(in)), b, y});
      };
      const Value z = c.temp("z", {n, 19});
      const Value a = kept ? c.out("a", {n, 19}) : c.temp("a", {n, 19});
      const Value y = c.temp("y", {n, 40}), u = c.temp("u", {n, 3});
      layer("1", c.in("x", {n, 37}), 19, z);
      c.add(Activation{ActivationKind::relu, z, a});
      layer("2", a, 40, y);
      layer("3", y, 3, u);
      c.add(Activation{ActivationKind::tanh, u, c.out("v", {n, 3})});
      all.push_back(c.done());
    }
  }
  // Threads are far apart in layers of very different widths.
  CaseBuilder wide("linear_chain 3000", dtype);
  Value x = wide.in("x", {3000, 8});
  for (const int64_t out : {96, 40, 5, 64, 3}) {
    const Value y =
        out == 3 ? wide.out("y", {3000, 3}) : wide.temp(fmt::format("y{}", out), {3000, out});
    const int64_t in = x.shape[1];
    wide.add(Linear{x, wide.param(fmt::format("w{}", out), {out, in}, weights(in)), Value{}, y});
    x = y;
  }
  all.push_back(wide.done());
  // A layer of each timestep, and one of whole samples: its rows are several of the first one's.
  CaseBuilder c("linear_chain of timesteps", dtype);
  const Value steps = c.temp("steps", {12, 5});
  Value samples = steps;
  samples.shape = {4, 15};
  c.add(Linear{c.in("x", {12, 7}), c.param("w1", {5, 7}, weights(7)), c.param("b1", {5}), steps});
  c.add(
      Linear{samples, c.param("w2", {6, 15}, weights(15)), c.param("b2", {6}), c.out("y", {4, 6})});
  all.push_back(c.done());
}

void add_loss_and_gradient(Cases& all, DType dtype) {
  for (const Shape& shape : {Shape{1, 10}, Shape{32, 10}, Shape{7, 3}, Shape{5, 129}}) {
    const double scale = 0.5 / double(shape[0]);
    CaseBuilder c("softmax_xent+grad " + to_string(shape), dtype);
    const Value x = c.in("x", shape, normal(5)), label = c.labels({shape[0]}, shape[1]);
    c.add(SoftmaxXent{x, label, c.tick(), c.loss(), c.correct(), scale});
    c.add(SoftmaxXentGrad{x, label, c.out("dx", shape), scale});
    all.push_back(c.done());

    CaseBuilder m("mse+grad " + to_string(shape), dtype);
    const Value mx = m.in("x", shape), ml = m.labels({shape[0]}, shape[1]);
    m.add(Mse{mx, ml, m.tick(), m.loss(), m.correct(), scale});
    m.add(MseGrad{mx, ml, m.out("dx", shape), scale});
    all.push_back(m.done());
  }
}

// A last layer, its loss and the backward pass to the activation before it, in the order of
// lowering. `kept`: the gradient of the layer's input is read outside.
void add_head(Cases& all, DType dtype) {
  constexpr int64_t kHeads[][3] = {{1, 1, 2}, {3, 5, 3}, {9, 37, 10}, {33, 130, 16}, {5, 64, 17}};
  for (const auto& [n, in, out] : kHeads) {
    for (const ActivationKind kind : {ActivationKind::relu, ActivationKind::tanh}) {
      for (const bool kept : {false, true}) {
        CaseBuilder c(
            fmt::format("head {}x{}->{} after {}{}", n, in, out, name(kind), kept ? " kept" : ""),
            dtype);
        const double scale = 1.0 / double(n);
        const Value x =
            c.in("x", {n, in}, kind == ActivationKind::relu ? relu_output() : normal(0.5));
        const Value w = c.param("w", {out, in}, weights(in));
        const Value b = n != 3 ? c.param("b", {out}) : Value{};
        const Value y = c.temp("y", {n, out}), dy = c.temp("dy", {n, out});
        const Value dx = kept ? c.out("dx", {n, in}) : c.temp("dx", {n, in});
        const Value label = c.labels({n}, out);
        c.add(Linear{x, w, b, y});
        c.add(SoftmaxXent{y, label, c.tick(), c.loss(), c.correct(), scale});
        c.add(SoftmaxXentGrad{y, label, dy, scale});
        c.add(LinearGradX{dy, w, dx});
        const Value db = b ? c.out("db", {out}) : Value{};
        c.add(LinearGradW{x, dy, c.out("dw", {out, in}), db});
        c.add(ActivationGrad{kind, x, dx, c.out("dz", {n, in})});
        all.push_back(c.done());
      }
    }
  }
}

// `kept`: the gradients are read outside, so that a kernel must write them.
void add_backward_update(Cases& all, DType dtype) {
  for (const auto& [n, in, out] : kFusedShapes) {
    for (const std::string how : {"sgd", "momentum", "nesterov", "adam", "adamw"}) {
      for (const int what : {0, 1, 2, 3}) {
        const bool grad_x = (what & 1) != 0, kept = (what & 2) != 0;
        CaseBuilder c(fmt::format("{}linear_grad_w+{} {}x{}->{}{}", grad_x ? "grad_x+" : "", how, n,
                                  in, out, kept ? " kept" : ""),
                      dtype);
        const Value x = c.in("x", {n, in}), dy = c.in("dy", {n, out}, normal(1 / double(n)));
        const Value w = c.param("w", {out, in}, weights(in)), b = c.param("b", {out});
        const Value dw = kept ? c.out("dw", {out, in}) : c.temp("dw", {out, in});
        const Value db = kept ? c.out("db", {out}) : c.temp("db", {out});
        if (grad_x) c.add(LinearGradX{dy, w, c.out("dx", {n, in})});
        c.add(LinearGradW{x, dy, dw, db});
        c.add_update(how, w, dw);
        c.add_update(how, b, db);
        all.push_back(c.done());
      }
    }
  }
}

// The gradients of one layer, summed over ranks (of which there is one), and the update.
void add_summed_update(Cases& all, DType dtype) {
  for (const auto& [n, in, out] : kFusedShapes) {
    for (const std::string how : {"sgd", "momentum", "adam"}) {
      for (const DType wire : {DType::fp32, DType::bf16}) {
        const bool bias = n != 5;
        CaseBuilder c(
            fmt::format("linear_grad_w+all_reduce+{} {}x{}->{} as {}", how, n, in, out, name(wire)),
            dtype);
        const Value x = c.in("x", {n, in}), dy = c.in("dy", {n, out}, normal(1 / double(n)));
        const Value w = c.param("w", {out, in}, weights(in)), b = c.param("b", {out});
        Values grads{c.temp("dw", {out, in})}, sums{c.temp("dw.sum", {out, in})};
        if (bias) grads.push_back(c.temp("db", {out}));
        if (bias) sums.push_back(c.temp("db.sum", {out}));
        const Value token = c.make("token", DType::int64, {1}, Role::temp, constant(0));
        c.add(LinearGradW{x, dy, grads[0], bias ? grads[1] : Value{}});
        c.add(AllReduceStart{grads, sums, token, 1, wire});
        c.add(AllReduceWait{grads, sums, token});
        c.add_update(how, w, sums[0]);
        if (bias) c.add_update(how, b, sums[1]);
        all.push_back(c.done());
      }
    }
  }
}

}  // namespace

std::vector<Case> fused_cases(DType dtype) {
  Cases all;
  add_linear_activation(all, dtype);
  add_linear_chain(all, dtype);
  add_loss_and_gradient(all, dtype);
  add_head(all, dtype);
  add_backward_update(all, dtype);
  for (Case& c : fused_conv_cases(dtype)) all.push_back(std::move(c));
  add_summed_update(all, dtype);
  return all;
}

}  // namespace ridgeline::test
