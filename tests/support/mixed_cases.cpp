#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/support/conv_cases.h"

namespace ridgeline::test {
namespace {

constexpr int64_t kMixedShapes[][3] = {{1, 1, 1},     {1, 37, 10},   {5, 17, 13}, {32, 64, 48},
                                       {33, 100, 31}, {128, 40, 33}, {8, 256, 16}};

// Products of halves with a bias, and gradients, in fp32.
void add_linear(Cases& all, DType dtype) {
  for (const auto& [n, in, out] : kMixedShapes) {
    const Fill weights = normal(1 / std::sqrt(double(in)));
    const auto title = [&, n = n, in = in, out = out](const char* op) {
      return fmt::format("{} {}x{}->{} mixed", op, n, in, out);
    };
    CaseBuilder forward(title("linear"), dtype);
    const Value x = forward.in("x", {n, in}), w = forward.param("w", {out, in}, weights);
    const Value b = forward.accumulator("b", {out}, Role::param);
    forward.add(Linear{x, w, b, forward.out("y", {n, out})});
    all.push_back(forward.done());

    CaseBuilder relu(title("linear+relu"), dtype);
    const Value rx = relu.in("x", {n, in}), rw = relu.param("w", {out, in}, weights);
    const Value z = relu.temp("z", {n, out});
    relu.add(Linear{rx, rw, relu.accumulator("b", {out}, Role::param), z});
    relu.add(Activation{ActivationKind::relu, z, relu.out("y", {n, out})});
    all.push_back(relu.done());

    CaseBuilder grad(title("linear_grad_w"), dtype);
    const Value gx = grad.in("x", {n, in}), dy = grad.in("dy", {n, out});
    const Value dw = grad.accumulator("dw", {out, in}, Role::output);
    grad.add(
        LinearGradW{gx, dy, dw, n != 5 ? grad.accumulator("db", {out}, Role::output) : Value{}});
    all.push_back(grad.done());
  }
}

// Convolutions of halves with a bias, and gradients, in fp32.
void add_conv(Cases& all, DType dtype) {
  for (const ConvCase& conv : conv_shapes()) {
    const auto& [n, shape] = conv;
    const Shape in{n, shape.in.numel()}, out{n, shape.out().numel()};
    const double taps = double(shape.weight().numel()) / double(shape.k);
    CaseBuilder c(to_string(conv) + " mixed", dtype);
    const Value x = c.in("x", in);
    const Value w = c.param("w", shape.weight(), normal(1 / std::sqrt(taps)));
    c.add(Conv2d{x, w, c.accumulator("b", {shape.k}, Role::param), c.out("y", out), shape});
    const Value dw = c.accumulator("dw", shape.weight(), Role::output);
    const Value db = n != 1 ? c.accumulator("db", {shape.k}, Role::output) : Value{};
    c.add(Conv2dGradW{x, c.in("dy", out), dw, db, shape});
    all.push_back(c.done());
  }
}

// A last layer and its backward pass with a scaled loss.
void add_head(Cases& all, DType dtype) {
  const int64_t n = 21, in = 70, out = 10;
  CaseBuilder c("head mixed", dtype);
  const Value x = c.in("x", {n, in}), w = c.param("w", {out, in}, normal(0.1));
  const Value y = c.temp("y", {n, out}), dy = c.temp("dy", {n, out});
  const Value label = c.labels({n}, out);
  c.add(Linear{x, w, c.accumulator("b", {out}, Role::param), y});
  c.add(SoftmaxXent{y, label, c.tick(), c.loss(), c.correct(), 1.0 / n});
  c.add(SoftmaxXentGrad{y, label, dy, 1.0 / n, c.loss_scale(512)});
  c.add(LinearGradX{dy, w, c.out("dx", {n, in})});
  c.add(LinearGradW{x, dy, c.accumulator("dw", {out, in}, Role::output),
                    c.accumulator("db", {out}, Role::output)});
  all.push_back(c.done());
}

void add_softmax(Cases& all, DType dtype) {
  for (const Shape& shape : {Shape{1, 10}, Shape{32, 10}, Shape{7, 129}}) {
    CaseBuilder c("softmax to fp32 " + to_string(shape), dtype);
    const Value x = c.in("x", shape, normal(3));
    c.add(Softmax{x, c.accumulator("y", shape, Role::output)});
    all.push_back(c.done());
  }
}

void add_updates(Cases& all, DType dtype) {
  for (const Shape& shape : {Shape{1}, Shape{13}, Shape{10, 100}, Shape{4099}}) {
    for (const std::string how : {"sgd", "momentum", "nesterov", "adam", "adamw"}) {
      CaseBuilder c(fmt::format("{} with a copy {}", how, to_string(shape)), dtype);
      for (const char* name : {"a", "b"}) {  // neighbours that kernels like to make together
        const Value w = c.accumulator(name, shape, Role::param);
        const Value dw = c.accumulator(std::string(name) + ".grad", shape, Role::input);
        c.add_update(how, w, dw, {}, c.copy(w));
      }
      all.push_back(c.done());
    }
  }
}

// The gradient of the loss, scaled.
void add_losses(Cases& all, DType dtype) {
  for (const Shape& shape : {Shape{1, 10}, Shape{32, 10}, Shape{7, 129}}) {
    const double scale = 1.0 / double(shape[0]);
    CaseBuilder c("softmax_xent+scaled grad " + to_string(shape), dtype);
    const Value x = c.in("x", shape, normal(5)), label = c.labels({shape[0]}, shape[1]);
    c.add(SoftmaxXent{x, label, c.tick(), c.loss(), c.correct(), scale});
    c.add(SoftmaxXentGrad{x, label, c.out("dx", shape), scale, c.loss_scale(512)});
    all.push_back(c.done());

    CaseBuilder m("mse+scaled grad " + to_string(shape), dtype);
    const Value mx = m.in("x", shape), ml = m.labels({shape[0]}, shape[1]);
    m.add(Mse{mx, ml, m.tick(), m.loss(), m.correct(), scale});
    m.add(MseGrad{mx, ml, m.out("dx", shape), scale, m.loss_scale(512)});
    all.push_back(m.done());
  }
}

// The norm of scaled gradients and updates by them: a good step, one after which the scale grows,
// one that clips, and one whose gradients overflowed.
void add_scaling(Cases& all, DType dtype) {
  struct Step {
    const char* name;
    double gradient, max_norm, good;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const Step steps[] = {{"good", 1, infinity, 3},
                        {"growing", 1, infinity, 9},
                        {"clipped", 1, 1e-3, 3},
                        {"skipped", infinity, infinity, 3},
                        {"NaN", std::nan(""), 1, 3}};
  for (const Step& step : steps) {
    for (const bool copies : {false, true}) {
      CaseBuilder c(fmt::format("scaled step, {}{}", step.name, copies ? ", copies" : ""), dtype);
      const auto gradient = [&](const char* name, const Shape& shape, Fill fill) {
        return copies ? c.accumulator(name, shape, Role::input, fill) : c.in(name, shape, fill);
      };
      const Value a = gradient("a.grad", {70, 3}, normal(2));
      const Value b = gradient("b.grad", {1}, constant(step.gradient));
      const Value scale = c.make("scale", DType::fp64, {1}, Role::temp, normal(1));
      const auto counter = [&](const char* name, double value) {
        return c.make(name, DType::int64, {1}, Role::state, constant(value));
      };
      c.add(GlobalNorm{{a, b},
                       c.make("norm", DType::fp64, {1}, Role::output, normal(1)),
                       scale,
                       counter("clipped", 2),
                       step.max_norm,
                       c.loss_scale(1024),
                       counter("good", step.good),
                       counter("skipped", 4),
                       10});
      const auto update = [&](const char* how, const char* name, const Value& dw) {
        const Value w =
            copies ? c.accumulator(name, dw.shape, Role::param) : c.param(name, dw.shape);
        c.add_update(how, w, dw, scale, copies ? c.copy(w) : Value{});
      };
      update("momentum", "a", a);
      update("momentum", "b", b);
      update("adam", "c", a);
      update("adam", "d", b);
      all.push_back(c.done());
    }
  }
}

}  // namespace

std::vector<Case> mixed_cases(DType dtype) {
  Cases all;
  if (size_of(dtype) != 2) return all;
  add_linear(all, dtype);
  add_conv(all, dtype);
  add_head(all, dtype);
  add_softmax(all, dtype);
  add_updates(all, dtype);
  add_losses(all, dtype);
  add_scaling(all, dtype);
  return all;
}

}  // namespace ridgeline::test
