#include <fmt/format.h>

#include "tests/support/conv_cases.h"

namespace ridgeline::test {
namespace {

// n, in, out: ones, primes, tails of every vector length, and ordinary sizes.
constexpr int64_t kLinearShapes[][3] = {{1, 1, 1},    {1, 7, 3},    {2, 3, 1},     {3, 1, 5},
                                        {5, 17, 13},  {32, 64, 10}, {33, 100, 31}, {64, 128, 48},
                                        {7, 129, 65}, {8, 257, 16}, {128, 40, 33}, {1, 300, 128}};
// Rows and columns of element-wise ops.
constexpr int64_t kOpShapes[][2] = {{1, 1}, {3, 37}, {8, 64}, {1, 1021}, {64, 33}};

void add_gather(Cases& all, DType dtype) {
  for (const auto& sample : {Shape{1}, Shape{7}, Shape{3, 11}, Shape{784}}) {
    for (const int64_t n : {1, 5, 32}) {
      CaseBuilder c(fmt::format("gather {} x {}", n, to_string(sample)), dtype);
      const Value set =
          c.make("set", DType::uint8, sample.prepend(41), Role::input, normal(1), 256);
      const Value order = c.make("order", DType::int32, {3 + 3 * n}, Role::input, normal(1), 41);
      const Value first = c.make("first", DType::int64, {1}, Role::input, constant(3));
      c.add(Gather{set, order, first, c.tick(), c.out("y", sample.prepend(n)), 1.0 / 255, -0.5});
      all.push_back(c.done());
    }
  }
  for (const auto& sample : {Shape{1}, Shape{7}, Shape{2, 14}, Shape{784}}) {
    CaseBuilder c(fmt::format("gather floats {}", to_string(sample)), dtype);
    const Value set = c.make("set", DType::fp32, sample.prepend(41), Role::input, normal(1));
    const Value order = c.make("order", DType::int32, {60}, Role::input, normal(1), 41);
    const Value first = c.make("first", DType::int64, {1}, Role::input, constant(3));
    c.add(Gather{set, order, first, c.tick(), c.out("y", sample.prepend(19))});
    all.push_back(c.done());
  }
  CaseBuilder tokens("gather tokens", dtype);
  const Value text = tokens.make("set", DType::uint8, {41, 7}, Role::input, normal(1), 256);
  const Value which = tokens.make("order", DType::int32, {60}, Role::input, normal(1), 41);
  const Value from = tokens.make("first", DType::int64, {1}, Role::input, constant(3));
  const Value token = tokens.make("y", DType::int32, {19, 7}, Role::output, normal(1), 256);
  tokens.add(Gather{text, which, from, tokens.tick(), token});
  all.push_back(tokens.done());
  CaseBuilder c("gather labels", dtype);
  const Value set = c.make("set", DType::int32, {41}, Role::input, normal(1), 10);
  const Value order = c.make("order", DType::int32, {60}, Role::input, normal(1), 41);
  const Value first = c.make("first", DType::int64, {1}, Role::input, constant(3));
  const Value y = c.make("y", DType::int32, {19}, Role::output, normal(1), 10);
  c.add(Gather{set, order, first, c.tick(), y});
  all.push_back(c.done());
}

void add_linear(Cases& all, DType dtype) {
  for (const auto& [n, in, out] : kLinearShapes) {
    for (const bool bias : {true, false}) {
      const auto title = [&, n = n, in = in, out = out](const char* op) {
        return fmt::format("{} {}x{}->{}{}", op, n, in, out, bias ? "" : " without bias");
      };
      CaseBuilder forward(title("linear"), dtype);
      const Value x = forward.in("x", {n, in}), w = forward.param("w", {out, in});
      const Value b = bias ? forward.param("b", {out}) : Value{};
      forward.add(Linear{x, w, b, forward.out("y", {n, out})});
      all.push_back(forward.done());

      CaseBuilder grad_w(title("linear_grad_w"), dtype);
      const Value xs = grad_w.in("x", {n, in}), dy = grad_w.in("dy", {n, out});
      const Value dw = grad_w.out("dw", {out, in});
      grad_w.add(LinearGradW{xs, dy, dw, bias ? grad_w.out("db", {out}) : Value{}});
      all.push_back(grad_w.done());
    }
    CaseBuilder grad_x(fmt::format("linear_grad_x {}x{}->{}", n, in, out), dtype);
    const Value dy = grad_x.in("dy", {n, out}), w = grad_x.param("w", {out, in});
    grad_x.add(LinearGradX{dy, w, grad_x.out("dx", {n, in})});
    all.push_back(grad_x.done());
  }
}

// What the gradient of each activation is given: values that its output (or input, saves_output)
// can have.
Fill saved(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::relu:
      return relu_output();
    case ActivationKind::tanh:
      return uniform(-1, 1);
    case ActivationKind::sigmoid:
      return uniform(0, 1);
    default:
      return normal(2);
  }
}

void add_elementwise(Cases& all, DType dtype) {
  for (const auto& [n, columns] : kOpShapes) {
    const Shape shape{n, columns};
    for (const ActivationKind kind : kActivations) {
      for (const Fill& fill : {normal(3), wide()}) {
        CaseBuilder c(fmt::format("{} {} {}", name(kind), to_string(shape), int(fill.kind)), dtype);
        const Value x = c.in("x", shape, fill);
        c.add(Activation{kind, x, c.out("y", shape)});
        all.push_back(c.done());
      }
      if (has_parameter(kind)) {
        CaseBuilder c(fmt::format("{} of 0.3 {}", name(kind), to_string(shape)), dtype);
        const Value x = c.in("x", shape, normal(3)), dy = c.in("dy", shape);
        c.add(Activation{kind, x, c.out("y", shape), 0.3});
        c.add(ActivationGrad{kind, x, dy, c.out("dx", shape), 0.3});
        all.push_back(c.done());
      }
      CaseBuilder c(fmt::format("{} gradient {}", name(kind), to_string(shape)), dtype);
      const Value y = c.in("saved", shape, saved(kind)), dy = c.in("dy", shape);
      c.add(ActivationGrad{kind, y, dy, c.out("dx", shape)});
      all.push_back(c.done());
    }
    for (const double p : {0.0, 0.1, 0.5}) {
      CaseBuilder c(fmt::format("dropout {} {}", p, to_string(shape)), dtype);
      const Value x = c.in("x", shape);
      const DropoutMask mask{
          .p = p, .seed = 0x123456789abcdefull, .layer = 3, .sample_offset = 2 * n};
      c.add(Dropout{x, c.step(), c.tick(), c.out("y", shape), mask});
      all.push_back(c.done());
    }
  }
}

void add_unary(Cases& all, DType dtype) {
  for (const auto& [n, columns] : kOpShapes) {
    const Shape shape{n, columns};
    for (const UnaryKind kind : kUnaryKinds) {
      const bool positive = kind == UnaryKind::log || kind == UnaryKind::sqrt;
      const Fill fill = positive || kind == UnaryKind::reciprocal ? uniform(0.01, 4) : normal(3);
      CaseBuilder c(fmt::format("{} {}", name(kind), to_string(shape)), dtype);
      const Value x = c.in("x", shape, fill), dy = c.in("dy", shape);
      c.add(Unary{kind, x, c.out("y", shape)});
      c.add(UnaryGrad{kind, x, dy, c.out("dx", shape)});
      all.push_back(c.done());
    }
  }
}

void add_losses(Cases& all, DType dtype) {
  constexpr int64_t kRows[][2] = {{1, 1}, {1, 10}, {5, 3}, {32, 10}, {7, 1000}, {2, 17}, {65, 16}};
  for (const auto& [n, classes] : kRows) {
    const Shape shape{n, classes};
    const double scale = 1.0 / double(n);
    // Small logits, large ones (exp would overflow), and all equal (the first class wins).
    for (const Fill& fill : {normal(2), normal(40), constant(0.5)}) {
      const std::string title = fmt::format("{} {}x{}", to_string(shape), int(fill.kind), fill.a);
      const bool count = fill.a != 40;
      CaseBuilder loss("softmax_xent " + title, dtype);
      const Value x = loss.in("x", shape, fill), label = loss.labels({n}, classes);
      loss.add(
          SoftmaxXent{x, label, loss.tick(), loss.loss(), count ? loss.correct() : Value{}, scale});
      all.push_back(loss.done());

      CaseBuilder grad("softmax_xent_grad " + title, dtype);
      const Value gx = grad.in("x", shape, fill), gl = grad.labels({n}, classes);
      grad.add(SoftmaxXentGrad{gx, gl, grad.out("dx", shape), scale});
      all.push_back(grad.done());

      CaseBuilder soft("softmax " + title, dtype);
      const Value sx = soft.in("x", shape, fill);
      soft.add(Softmax{sx, soft.out("y", shape)});
      all.push_back(soft.done());
    }
    for (const bool labels : {true, false}) {
      const std::string title = to_string(shape) + (labels ? " of labels" : " of floats");
      CaseBuilder loss("mse " + title, dtype);
      const Value x = loss.in("x", shape);
      const Value target = labels ? loss.labels({n}, classes) : loss.in("target", shape);
      loss.add(Mse{x, target, loss.tick(), loss.loss(), labels ? loss.correct() : Value{}, scale});
      all.push_back(loss.done());

      CaseBuilder grad("mse_grad " + title, dtype);
      const Value gx = grad.in("x", shape);
      const Value gt = labels ? grad.labels({n}, classes) : grad.in("target", shape);
      grad.add(MseGrad{gx, gt, grad.out("dx", shape), scale});
      all.push_back(grad.done());
    }
  }
}

void add_updates(Cases& all, DType dtype) {
  for (const Shape& shape : {Shape{1}, Shape{13}, Shape{10, 100}, Shape{4099}}) {
    for (const std::string how : {"sgd", "momentum", "nesterov", "adam", "adamw"}) {
      for (const bool scaled : {false, true}) {
        CaseBuilder c(fmt::format("{} {}{}", how, to_string(shape), scaled ? " scaled" : ""),
                      dtype);
        const Value w = c.param("w", shape), dw = c.in("dw", shape);
        const Value scale =
            scaled ? c.make("grad_scale", DType::fp64, {1}, Role::input, constant(0.3)) : Value{};
        c.add_update(how, w, dw, scale);
        all.push_back(c.done());
      }
    }
    for (const double max_norm : {0.5, 1e4}) {
      CaseBuilder c(fmt::format("global_norm {} max {}", to_string(shape), max_norm), dtype);
      const Values grads{c.in("a", shape), c.in("b", {3}), c.in("c", {1})};
      c.add(GlobalNorm{grads, c.make("norm", DType::fp64, {1}, Role::output, normal(1)),
                       c.make("scale", DType::fp64, {1}, Role::output, normal(1)),
                       c.make("clipped", DType::int64, {1}, Role::state, constant(5)), max_norm});
      all.push_back(c.done());
    }
  }
  CaseBuilder zero("global_norm of zeros", dtype);
  zero.add(GlobalNorm{{zero.in("a", {5}, constant(0))},
                      zero.make("norm", DType::fp64, {1}, Role::output, normal(1)),
                      zero.make("scale", DType::fp64, {1}, Role::output, normal(1)),
                      zero.make("clipped", DType::int64, {1}, Role::state, constant(0)),
                      1.0});
  all.push_back(zero.done());
  CaseBuilder tick("tick", dtype);
  tick.add(Tick{tick.tick()});
  all.push_back(tick.done());
}

// One rank; tests/dist has several.
void add_sums(Cases& all, DType dtype) {
  for (const Shape& shape : {Shape{1}, Shape{13}, Shape{10, 100}, Shape{70'001}}) {
    for (const DType wire : {DType::fp32, DType::bf16}) {
      CaseBuilder c(fmt::format("all_reduce {} as {}", to_string(shape), name(wire)), dtype);
      const Values grads{c.in("a", shape), c.in("b", {3})};
      const Values sums{c.out("sa", shape), c.out("sb", {3})};
      const Value token = c.make("token", DType::int64, {1}, Role::temp, constant(0));
      c.add(AllReduceStart{grads, sums, token, 1, wire});
      c.add(AllReduceWait{grads, sums, token});
      all.push_back(c.done());
    }
  }
  CaseBuilder c("all_reduce_wait", dtype);
  const Values grads{c.in("a", {7})}, sums{c.state("sum", {7})};
  c.add(AllReduceWait{grads, sums, c.make("token", DType::int64, {1}, Role::input, constant(0))});
  all.push_back(c.done());
}

}  // namespace

std::vector<Case> op_cases(DType dtype) {
  Cases all;
  add_gather(all, dtype);
  add_linear(all, dtype);
  add_unary(all, dtype);
  add_elementwise(all, dtype);
  add_losses(all, dtype);
  add_updates(all, dtype);
  for (Case& c : conv_cases(dtype)) all.push_back(std::move(c));
  for (Case& c : loss_cases(dtype)) all.push_back(std::move(c));
  for (Case& c : group_norm_cases(dtype)) all.push_back(std::move(c));
  for (Case& c : join_cases(dtype)) all.push_back(std::move(c));
  for (Case& c : rearrange_cases(dtype)) all.push_back(std::move(c));
  for (Case& c : recurrent_op_cases(dtype)) all.push_back(std::move(c));
  for (Case& c : text_op_cases(dtype)) all.push_back(std::move(c));
  add_sums(all, dtype);
  return all;
}

}  // namespace ridgeline::test
