// Bounds of weighted cross-entropy and of the element-wise losses.
#include "tests/support/bounds_rules.h"

namespace ridgeline::test {
namespace {

// The weight of the sample of row r.
template <typename Op>
double row_weight(const Rules& rules, const Op& op, int64_t r) {
  if (!op.sample_weights) return 1;
  return rules.val(op.sample_weights)[r / (op.x.shape[0] / op.sample_weights.shape.numel())];
}

// The targets of SoftmaxXent with class and sample weights and smoothing, from the op's definition.
struct ClassTargets {
  const double* weights;  // null: all 1
  const int32_t* label;
  double smoothing;
  int64_t n, classes;
  std::vector<double> rows;  // the weight of each

  double weight(int64_t c) const { return weights != nullptr ? weights[c] : 1.0; }
  double at(int64_t r, int64_t c) const {
    const double hit = c == label[r] ? 1 - smoothing : 0.0;
    return rows[size_t(r)] * (hit + smoothing / double(classes)) * weight(c);
  }
  double sum(int64_t r) const {
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += at(r, c);
    return sum;
  }
  double factor() const {
    double sum = 0;
    for (int64_t r = 0; r < n; ++r) sum += weight(label[r]);
    return double(n) / sum;
  }
};

template <typename Op>
ClassTargets targets_of(const Rules& rules, const Op& op) {
  std::vector<double> rows;
  for (int64_t r = 0; r < op.x.shape[0]; ++r) rows.push_back(row_weight(rules, op, r));
  return {op.weights ? rules.val(op.weights) : nullptr,
          rules.values[op.label].template as<int32_t>(),
          op.smoothing,
          op.x.shape[0],
          op.x.shape[1],
          std::move(rows)};
}

// An element of x with its target and weight, as ElementwiseLoss pairs them.
struct Element {
  double x, target, weight, error;  // error: of x and target together
  double x_error, target_error;
};

template <typename Op>
Element element_of(const Rules& rules, const Op& op, int64_t i) {
  const int64_t out = op.x.shape[1], r = i / out, c = i % out;
  Element e{rules.val(op.x)[i], 0, 1, 0, rules.e(op.x, i), 0};
  if (op.target.dtype == DType::int32) {
    e.target = rules.values[op.target].template as<int32_t>()[r] == c ? 1 : 0;
  } else {
    const int64_t columns = op.target.shape[1], at = r * columns + c / (out / columns);
    e.target = rules.val(op.target)[at];
    e.target_error = rules.e(op.target, at);
  }
  if (op.weights) e.weight = rules.val(op.weights)[c % op.weights.shape.numel()];
  e.error = e.x_error + e.target_error;
  return e;
}

double softplus(double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Bounded {
  double value, error;
};

Bounded loss_of(LossFn fn, double delta, const Element& e, double u) {
  const double d = std::abs(e.x - e.target), off = e.error + u * d;
  switch (fn) {
    case LossFn::mae:
      return {d, off};
    case LossFn::huber: {
      const double value = d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
      // The linear part is a difference, of numbers of delta * d.
      return {value, std::min(delta, d + off) * off + 4 * u * std::min(delta * d, d * d)};
    }
    case LossFn::bce_with_logits: {
      const double rest = std::abs(1 - e.target), log = softplus(-e.x);
      const double part = 1 + (std::abs(e.weight) + 1) * std::abs(e.target);  // bounds its terms
      const double value = (1 - e.target) * e.x + (1 + (e.weight - 1) * e.target) * log;
      const double slope = rest + part, by_target = std::abs(e.x) + part * log;
      return {value, slope * e.x_error + by_target * e.target_error + 3 * u * rest * std::abs(e.x) +
                         (kUlps + 5) * u * part * log};
    }
    case LossFn::quantile: {
      const double w = e.x < e.target ? e.weight : 1 - e.weight;
      return {w * d, std::max(e.weight, 1 - e.weight) * off + 3 * u * d};
    }
  }
  return {0, 0};
}

// The error of the derivative, before it is multiplied by the scale.
double slope_error(LossFn fn, double delta, const Element& e, double u) {
  const double d = std::abs(e.x - e.target);
  const bool corner = e.error > 0 && d <= e.error;
  switch (fn) {
    case LossFn::mae:
      return corner ? 2 : 0;
    case LossFn::huber:
      return e.error + 3 * u * std::min(d, delta);
    case LossFn::bce_with_logits: {
      const double part = 1 + (std::abs(e.weight) + 1) * std::abs(e.target);
      return 0.25 * part * e.x_error + (1 + part) * e.target_error +
             2 * u * std::abs(1 - e.target) + (kUlps + 5) * u * part * sigmoid(-e.x);
    }
    case LossFn::quantile:
      return corner ? 1 : 2 * u;
  }
  return 0;
}

}  // namespace

void Rules::weighted(const SoftmaxXentGrad& op) const {
  const ClassTargets target = targets_of(*this, op);
  const double factor = op.scale * target.factor() * (op.loss_scale ? *val(op.loss_scale) : 1.0);
  const double roundings = double(target.classes) + 12;
  for (int64_t r = 0; r < target.n; ++r) {
    const double sum = target.sum(r);
    for (int64_t c = 0; c < target.classes; ++c) {
      const int64_t i = r * target.classes + c;
      const double t = target.at(r, c);
      const double p = std::clamp((val(op.dx)[i] / factor + t) / sum, 0.0, 1.0);
      const double error = sum * probability(p, op.x, r, c);
      store(op.dx, i, std::abs(factor) * (error + roundings * u(op.x) * (sum * p + t + error)));
    }
  }
}

void Rules::weighted(const SoftmaxXent& op) const {
  const ClassTargets target = targets_of(*this, op);
  const int64_t classes = target.classes;
  double error = 0, sum = 0;
  for (int64_t r = 0; r < target.n; ++r) {
    const double* v = val(op.x) + r * classes;
    const double max = *std::max_element(v, v + classes);
    const double spread = 2 * largest_error(op.x, r * classes, classes);
    double total = 0, mean = 0;
    for (int64_t c = 0; c < classes; ++c) {
      total += std::exp(v[c] - max);
      mean += std::exp(v[c] - max) * (max - v[c]);
    }
    const double log_error = spread + u(op.x) * (mean / total + double(classes) + 2 * kUlps);
    for (int64_t c = 0; c < classes; ++c) {
      const double t = target.at(r, c), loss = std::log(total) + max - v[c];
      const double terms = std::log(total) + std::abs(max) + std::abs(v[c]);
      error += t * (log_error + u(op.x) * (3 * terms + double(classes + 8) * loss));
      sum += t * loss;
    }
  }
  const double scale = std::abs(op.scale) * target.factor();
  const size_t at = size_t(*values[op.tick].as<int32_t>());
  err(op.loss)[at] = scale * (error + double(target.n + 6) * u(op.x) * (sum + error));
  if (op.correct) err(op.correct)[at] = score_samples(op.x, op.label);
}

void Rules::operator()(const ElementwiseLoss& op) const {
  const int64_t count = op.x.shape.numel();
  double error = 0, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Bounded loss = loss_of(op.fn, op.delta, element_of(*this, op, i), u(op.x));
    const double weight = row_weight(*this, op, i / op.x.shape[1]);
    error += weight * loss.error;
    sum += weight * std::abs(loss.value);
  }
  const size_t at = size_t(*values[op.tick].as<int32_t>());
  err(op.loss)[at] = std::abs(op.scale) * (error + double(count + 3) * u(op.x) * (sum + error));
  if (op.correct) err(op.correct)[at] = score_samples(op.x, op.target);
}

void Rules::operator()(const ElementwiseLossGrad& op) const {
  const double scale = std::abs(op.scale * (op.loss_scale ? *val(op.loss_scale) : 1.0));
  for (int64_t i = 0; i < op.dx.shape.numel(); ++i) {
    const double error = row_weight(*this, op, i / op.x.shape[1]) *
                         slope_error(op.fn, op.delta, element_of(*this, op, i), u(op.x));
    store(op.dx, i, scale * error + 5 * u(op.x) * std::abs(val(op.dx)[i]));
  }
}

}  // namespace ridgeline::test
