#include <fmt/format.h>

#include <array>
#include <limits>

#include "tests/support/cases.h"

namespace ridgeline::test {
namespace {

constexpr int64_t kRows[][2] = {{1, 1}, {1, 10}, {5, 3}, {32, 10}, {7, 129}, {2, 17}, {65, 16}};

Value weights(CaseBuilder& c, int64_t count, const Fill& fill) {
  return c.make("weights", DType::fp64, {count}, Role::input, fill);
}

// A loss and its gradient, each alone and in sequence.
void add_elementwise(std::vector<Case>& all, DType dtype, LossFn fn, const Shape& shape,
                     int64_t columns, int64_t weight_count) {
  const std::string title = fmt::format("{} {} of {} targets, {} weights", name(fn),
                                        to_string(shape), columns, weight_count);
  const double scale = 1.0 / double(shape.numel()), delta = 0.75;
  CaseBuilder c(title, dtype);
  const bool labels = columns == 0;
  const Value x = c.in("x", shape, normal(3));
  const Fill fill = fn == LossFn::bce_with_logits ? uniform(0, 1) : normal(3);
  const Value target =
      labels ? c.labels({shape[0]}, shape[1]) : c.in("target", {shape[0], columns}, fill);
  const Value w = weight_count == 0
                      ? Value{}
                      : weights(c, weight_count,
                                fn == LossFn::quantile ? uniform(0.05, 0.95) : uniform(0.2, 4));
  const ElementwiseLoss loss{
      fn, x, target, w, c.tick(), c.loss(), labels ? c.correct() : Value{}, scale, delta};
  c.add(loss);
  c.add(ElementwiseLossGrad{fn, x, target, w, c.out("dx", shape), scale, delta});
  all.push_back(c.done());
  CaseBuilder g(title + " scaled gradient", dtype);
  const Value gx = g.in("x", shape, normal(3));
  const Value gt =
      labels ? g.labels({shape[0]}, shape[1]) : g.in("target", {shape[0], columns}, fill);
  const Value gw = weight_count == 0
                       ? Value{}
                       : weights(g, weight_count,
                                 fn == LossFn::quantile ? uniform(0.05, 0.95) : uniform(0.2, 4));
  g.add(ElementwiseLossGrad{fn, gx, gt, gw, g.out("dx", shape), scale, delta, g.loss_scale(512)});
  all.push_back(g.done());
}

void add_weighted_xent(std::vector<Case>& all, DType dtype, const Shape& shape) {
  const int64_t n = shape[0], classes = shape[1];
  const double scale = 1.0 / double(n);
  for (const double smoothing : {0.0, 0.1}) {
    for (const bool weighted : {true, false}) {
      if (!weighted && smoothing == 0) continue;
      for (const Fill& fill : {normal(2), normal(40)}) {
        CaseBuilder c(fmt::format("softmax_xent {} smoothing {}{} x{}", to_string(shape), smoothing,
                                  weighted ? " weighted" : "", fill.a),
                      dtype);
        const Value x = c.in("x", shape, fill), label = c.labels({n}, classes);
        const Value w = weighted ? weights(c, classes, uniform(0.2, 4)) : Value{};
        const Value correct = fill.a != 40 ? c.correct() : Value{};
        c.add(SoftmaxXent{x, label, c.tick(), c.loss(), correct, scale, w, smoothing});
        c.add(SoftmaxXentGrad{x, label, c.out("dx", shape), scale, {}, w, smoothing});
        all.push_back(c.done());
      }
    }
  }
  if (classes == 1) return;  // 512 times a zero
  CaseBuilder c("softmax_xent weighted, scaled gradient " + to_string(shape), dtype);
  const Value x = c.in("x", shape), label = c.labels({n}, classes);
  c.add(SoftmaxXentGrad{x, label, c.out("dx", shape), scale, c.loss_scale(512),
                        weights(c, classes, uniform(0.2, 4)), 0.2});
  all.push_back(c.done());
}

// Losses of samples with weights, each of so many rows.
void add_sample_weights(std::vector<Case>& all, DType dtype, const Shape& shape, int64_t rows) {
  const double scale = 1.0 / double(shape[0]);
  const auto sample_weights = [&](CaseBuilder& c) {
    return c.in("sample_weights", {shape[0] / rows}, uniform(0.2, 4));
  };
  const std::string title = fmt::format("{} of samples of {} with weights", to_string(shape), rows);
  for (const bool weighted : {false, true}) {
    CaseBuilder c(fmt::format("softmax_xent{} {}", weighted ? " of weighted classes" : "", title),
                  dtype);
    const Value x = c.in("x", shape, normal(2)), label = c.labels({shape[0]}, shape[1]);
    const Value w = weighted ? weights(c, shape[1], uniform(0.2, 4)) : Value{};
    const Value v = sample_weights(c);
    const double smoothing = weighted ? 0.1 : 0.0;
    c.add(SoftmaxXent{x, label, c.tick(), c.loss(), c.correct(), scale, w, smoothing, v});
    c.add(SoftmaxXentGrad{x, label, c.out("dx", shape), scale, {}, w, smoothing, v});
    all.push_back(c.done());
  }
  for (const LossFn fn : kLossFns) {
    // The last is the mean square.
    for (const double delta : {0.75, std::numeric_limits<double>::infinity()}) {
      if (fn != LossFn::huber && delta != 0.75) continue;
      CaseBuilder c(fmt::format("{} {} delta {}", name(fn), title, delta), dtype);
      const Fill fill = fn == LossFn::bce_with_logits ? uniform(0, 1) : normal(3);
      const Value x = c.in("x", shape, normal(3)), target = c.in("target", shape, fill);
      const Value w = fn == LossFn::quantile ? weights(c, 1, uniform(0.05, 0.95)) : Value{};
      const Value v = sample_weights(c), dx = c.out("dx", shape);
      c.add(ElementwiseLoss{fn, x, target, w, c.tick(), c.loss(), {}, scale, delta, v});
      c.add(ElementwiseLossGrad{fn, x, target, w, dx, scale, delta, {}, v});
      all.push_back(c.done());
    }
  }
}

}  // namespace

std::vector<Case> loss_cases(DType dtype) {
  std::vector<Case> all;
  for (const auto& [n, out] : kRows) {
    const Shape shape{n, out};
    for (const LossFn fn : kLossFns) {
      const bool quantile = fn == LossFn::quantile, weighted = fn == LossFn::bce_with_logits;
      add_elementwise(all, dtype, fn, shape, out, quantile || weighted ? 1 : 0);
      add_elementwise(all, dtype, fn, shape, 0, quantile ? 1 : 0);  // labels
    }
    add_elementwise(all, dtype, LossFn::bce_with_logits, shape, out, out);
    add_weighted_xent(all, dtype, shape);
  }
  for (const auto& [n, out, rows] : {std::array<int64_t, 3>{5, 3, 1}, {33, 10, 3}, {64, 17, 1}}) {
    add_sample_weights(all, dtype, {n, out}, rows);
  }
  // Several quantiles of each target.
  for (const auto& [n, targets, quantiles] :
       {std::array<int64_t, 3>{5, 1, 3}, {9, 4, 3}, {33, 7, 5}}) {
    add_elementwise(all, dtype, LossFn::quantile, {n, targets * quantiles}, targets, quantiles);
  }
  return all;
}

}  // namespace ridgeline::test
