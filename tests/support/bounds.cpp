#include "tests/support/bounds.h"

#include <span>

#include "tests/support/bounds_rules.h"

namespace ridgeline::test {
double Rules::product(const Value& a, int64_t a0, int64_t a_stride, const Value& b, int64_t b0,
                      int64_t b_stride, int64_t count, double start, double start_error) const {
  const double *av = val(a), *bv = val(b), *ae = err(a).data(), *be = err(b).data();
  double sum = std::abs(start), spread = start_error;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t ai = a0 + i * a_stride, bi = b0 + i * b_stride;
    const double am = std::abs(av[ai]), bm = std::abs(bv[bi]);
    sum += am * bm;
    spread += am * be[bi] + bm * ae[ai] + ae[ai] * be[bi];
  }
  const bool in_fp16 = program.accumulate == Precision::fp16;
  const double unit = in_fp16 ? unit_roundoff(DType::fp16) : u(a);
  const double roundings = double(count + 2) * unit + factor_roundoff(program.precision);
  // Sums below the smallest normal number of fp16 are rounded to multiples of 2^-24.
  return spread + roundings * (sum + spread) + (in_fp16 ? double(count + 2) * 0x1p-25 : 0.0);
}

void Rules::operator()(const Gather& op) const {
  if (!is_float(op.y.dtype)) return;
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    const double terms = std::abs(val(op.y)[i] - op.shift) + std::abs(op.shift);
    store(op.y, i, 3 * u(op.y) * terms);
  }
}

void Rules::operator()(const Linear& op) const {
  const int64_t in = op.in(), out = op.out();
  for (int64_t i = 0; i < op.n() * out; ++i) {
    const int64_t r = i / out, o = i % out;
    const double b = op.b ? val(op.b)[o] : 0.0, b_error = op.b ? e(op.b, o) : 0.0;
    store(op.y, i, product(op.x, r * in, 1, op.w, o * in, 1, in, b, b_error));
  }
}

void Rules::operator()(const LinearGradX& op) const {
  const int64_t in = op.in(), out = op.out();
  for (int64_t i = 0; i < op.n() * in; ++i) {
    store(op.dx, i, product(op.dy, i / in * out, 1, op.w, i % in, in, out, 0, 0));
  }
}

void Rules::operator()(const LinearGradW& op) const {
  const int64_t n = op.n(), in = op.in(), out = op.out();
  for (int64_t i = 0; i < out * in; ++i) {
    store(op.dw, i, product(op.dy, i / in, out, op.x, i % in, in, n, 0, 0));
  }
  if (!op.db) return;
  for (int64_t o = 0; o < out; ++o) {
    double sum = 0, spread = 0;
    for (int64_t r = 0; r < n; ++r) {
      sum += std::abs(val(op.dy)[r * out + o]);
      spread += e(op.dy, r * out + o);
    }
    store(op.db, o, spread + double(n) * u(op.dy) * (sum + spread));
  }
}

void Rules::operator()(const Dropout& op) const {
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    const double y = std::abs(val(op.y)[i]);
    const bool kept = y != 0 || val(op.x)[i] == 0;
    store(op.y, i, kept ? e(op.x, i) / (1 - op.mask.p) + 3 * u(op.x) * y : 0.0);
  }
}

// p = exp(x - max) / sum: the difference is rounded relative to its own size, exp and the sum
// relatively, and an error of the logits enters as e^(2E). No probability is off by more than 1.
double Rules::probability(double p, const Value& x, int64_t row, int64_t c) const {
  const int64_t classes = x.shape[1];
  const double* v = val(x) + row * classes;
  const double max = *std::max_element(v, v + classes);
  double sum = 0, mean = 0;
  for (int64_t k = 0; k < classes; ++k) {
    sum += std::exp(v[k] - max);
    mean += std::exp(v[k] - max) * (max - v[k]);
  }
  const double far = max - v[c] + mean / sum;
  const double spread = std::expm1(2 * largest_error(x, row * classes, classes));
  return std::min(1.0, p * (spread + u(x) * (2 * far + double(classes) + 2 * kUlps)));
}

void Rules::operator()(const Softmax& op) const {
  const int64_t classes = op.x.shape[1];
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    store(op.y, i, probability(val(op.y)[i], op.x, i / classes, i % classes));
  }
}

// The index may be any of those whose numbers may be the largest.
void Rules::operator()(const Argmax& op) const {
  const int64_t classes = op.x.shape[1];
  for (int64_t r = 0; r < op.x.shape[0]; ++r) {
    const int64_t place = values[op.y].as<int32_t>()[r], largest = r * classes + place;
    for (int64_t c = 0; c < classes; ++c) {
      const double slack = e(op.x, r * classes + c) + e(op.x, largest);
      const double lead = val(op.x)[largest] - val(op.x)[r * classes + c];
      if (slack == 0 || lead > slack) continue;
      double& free = err(op.y)[size_t(r)];
      free = std::max(free, double(std::abs(c - place)));
    }
  }
}

void Rules::operator()(const SoftmaxXentGrad& op) const {
  if (!op.one_hot()) return weighted(op);
  const int64_t classes = op.x.shape[1];
  const auto* label = values[op.label].as<int32_t>();
  const double scale = op.scale * (op.loss_scale ? *val(op.loss_scale) : 1.0);
  for (int64_t i = 0; i < op.dx.shape.numel(); ++i) {
    const double off = val(op.dx)[i] / scale;  // p - target
    const double p = off + (label[i / classes] == i % classes ? 1.0 : 0.0);
    const double error = probability(std::abs(p), op.x, i / classes, i % classes);
    store(op.dx, i, std::abs(scale) * (error + 4 * u(op.x) * (std::abs(off) + error)));
  }
}

// How many samples are so close to a tie that their largest class is not certain.
double Rules::score_samples(const Value& x, const Value& label) const {
  const int64_t classes = x.shape[1];
  const auto* labels = values[label].as<int32_t>();
  double open = 0;
  for (int64_t r = 0; r < x.shape[0]; ++r) {
    const int64_t target = r * classes + labels[r];
    bool certain_loss = false, contested = false;
    for (int64_t i = r * classes; i < (r + 1) * classes; ++i) {
      const double lead = val(x)[i] - val(x)[target], slack = e(x, i) + e(x, target);
      if (i == target) continue;
      certain_loss |= lead > slack;
      contested |= slack > 0 && std::abs(lead) <= slack;
    }
    open += !certain_loss && contested;
  }
  return open;
}

void Rules::operator()(const SoftmaxXent& op) const {
  if (!op.one_hot()) return weighted(op);
  const int64_t n = op.x.shape[0], classes = op.x.shape[1];
  const auto* label = values[op.label].as<int32_t>();
  double error = 0, sum = 0;
  for (int64_t r = 0; r < n; ++r) {
    const double* v = val(op.x) + r * classes;
    const double max = *std::max_element(v, v + classes), at = v[label[r]];
    const double spread = 2 * largest_error(op.x, r * classes, classes);
    double total = 0, mean = 0;
    for (int64_t c = 0; c < classes; ++c) {
      total += std::exp(v[c] - max);
      mean += std::exp(v[c] - max) * (max - v[c]);
    }
    const double terms = std::log(total) + std::abs(max) + std::abs(at);
    error += spread + u(op.x) * (mean / total + double(classes) + 2 * kUlps + 3 * terms);
    sum += std::log(total) + max - at;
  }
  const size_t at = size_t(*values[op.tick].as<int32_t>());
  err(op.loss)[at] = std::abs(op.scale) * (error + double(n + 2) * u(op.x) * (sum + error));
  if (op.correct) err(op.correct)[at] = score_samples(op.x, op.label);
}

void Rules::operator()(const MseGrad& op) const {
  const bool labels = op.target.dtype == DType::int32;
  const double scale = op.scale * (op.loss_scale ? *val(op.loss_scale) : 1.0);
  for (int64_t i = 0; i < op.dx.shape.numel(); ++i) {
    const double error = e(op.x, i) + (labels ? 0.0 : e(op.target, i));
    store(op.dx, i, 2 * std::abs(scale) * error + 5 * u(op.x) * std::abs(val(op.dx)[i]));
  }
}

void Rules::operator()(const Mse& op) const {
  const bool labels = op.target.dtype == DType::int32;
  const int64_t out = op.x.shape[1], count = op.x.shape.numel();
  double error = 0, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double target =
        labels ? double(values[op.target].as<int32_t>()[i / out] == i % out) : val(op.target)[i];
    const double off = std::abs(val(op.x)[i] - target);
    const double off_error = e(op.x, i) + (labels ? 0.0 : e(op.target, i)) + u(op.x) * off;
    error += 2 * off * off_error + off_error * off_error;
    sum += off * off;
  }
  const size_t at = size_t(*values[op.tick].as<int32_t>());
  err(op.loss)[at] = std::abs(op.scale) * (error + double(count + 2) * u(op.x) * (sum + error));
  if (op.correct) err(op.correct)[at] = score_samples(op.x, op.target);
}

// The bound of a value that `a` is stored to.
static double rounded(const Value& v, const Approx& a) {
  return a.error + unit_roundoff(v.dtype) * (std::abs(a.value) + a.error) +
         smallest_normal(v.dtype);
}

// The bounds of a weight after its update to `w`, and of the copy that is made of the stored
// weight.
void Rules::store_weight(const Value& weight, const Value& copy, int64_t i, Approx w) const {
  w.error = rounded(weight, w);
  err(weight)[size_t(i)] = w.error;
  if (copy) err(copy)[size_t(i)] = rounded(copy, w);
}

// Computed before the update, with the formulas of the op in numbers that carry their own bounds.
void Rules::operator()(const SgdUpdate& op) const {
  const double u = this->u(op.w);
  const auto exact = [&](double value) { return Approx{value, u * std::abs(value), u}; };
  const auto element = [&](const Value& v, int64_t i) { return Approx{val(v)[i], e(v, i), u}; };
  const Approx lr = exact(val(op.lr)[*values[op.tick].as<int32_t>()]);
  const Approx scale = op.grad_scale ? element(op.grad_scale, 0) : Approx{1, 0, u};
  if (scale.value == 0) return;  // the step is skipped
  for (int64_t i = 0; i < op.w.shape.numel(); ++i) {
    const Approx w = element(op.w, i);
    Approx g = element(op.dw, i) * scale + exact(op.weight_decay) * w;
    if (op.m) {
      const Approx m = exact(op.momentum) * element(op.m, i) + g;
      err(op.m)[size_t(i)] = rounded(op.m, m);
      g = op.nesterov ? g + exact(op.momentum) * m : m;
    }
    store_weight(op.w, op.copy, i, w - lr * g);
  }
}

void Rules::operator()(const AdamUpdate& op) const {
  const double u = this->u(op.w);
  const auto exact = [&](double value) { return Approx{value, u * std::abs(value), u}; };
  const auto element = [&](const Value& v, int64_t i) { return Approx{val(v)[i], e(v, i), u}; };
  const Approx lr = exact(val(op.lr)[*values[op.tick].as<int32_t>()]);
  const Approx scale = op.grad_scale ? element(op.grad_scale, 0) : Approx{1, 0, u};
  const double t = double(*values[op.step].as<int64_t>() + *values[op.tick].as<int32_t>() + 1);
  if (scale.value == 0) return;  // the step is skipped
  const Approx first = exact(1 - std::pow(op.beta1, t)), second = exact(1 - std::pow(op.beta2, t));
  for (int64_t i = 0; i < op.w.shape.numel(); ++i) {
    Approx w = element(op.w, i), m = element(op.m, i), v = element(op.v, i);
    Approx g = element(op.dw, i) * scale;
    if (op.decoupled) {
      w = w - lr * exact(op.weight_decay) * w;
    } else {
      g = g + exact(op.weight_decay) * w;
    }
    m = m + exact(1 - op.beta1) * (g - m);
    v = v + exact(1 - op.beta2) * (g * g - v);
    w = w - lr / first * m / (sqrt(v / second) + exact(op.epsilon));
    err(op.m)[size_t(i)] = rounded(op.m, m);
    err(op.v)[size_t(i)] = rounded(op.v, v);
    store_weight(op.w, op.copy, i, w);
  }
}

void Rules::operator()(const GlobalNorm& op) const {
  double sum = 0, spread = 0, count = 0, u = 0;
  for (const Value& grad : op.grads) {
    u = this->u(grad);
    for (int64_t i = 0; i < grad.shape.numel(); ++i) {
      const double g = std::abs(val(grad)[i]), off = e(grad, i);
      sum += g * g;
      spread += 2 * g * off + off * off;
    }
    count += double(grad.shape.numel());
  }
  if (!std::isfinite(sum)) return;  // what follows is exact: infinite or NaN, zero, a counter
  const Approx loss_scale{op.loss_scale ? *val(op.loss_scale) : 1.0, 0, u};
  const Approx norm = sqrt(Approx{sum, spread + (count + 2) * u * (sum + spread), u}) / loss_scale;
  err(op.norm)[0] = norm.error;
  const bool may_clip = norm.value + norm.error > op.max_norm;
  const bool may_not = norm.value - norm.error <= op.max_norm;
  err(op.scale)[0] = may_clip ? (Approx{op.max_norm, 0, u} / norm / loss_scale).error : 0.0;
  err(op.clipped)[0] += may_clip && may_not ? 1.0 : 0.0;
}

void Rules::operator()(const GatherAugment& op) const {
  if (!is_float(op.y.dtype)) return;
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    const double terms = std::abs(val(op.y)[i] - op.shift) + std::abs(op.shift);
    store(op.y, i, 3 * u(op.y) * terms);
  }
}

// One rank: copies, rounded once as a share and once as a sum if they are sent as bf16.
void Rules::operator()(const AllReduceStart& op) const {
  for (size_t k = 0; k < op.grads.size(); ++k) {
    const Value &grad = op.grads[k], &sum = op.sums[k];
    const bool narrow = op.wire == DType::bf16 && grad.dtype == DType::fp32;
    for (int64_t i = 0; i < grad.shape.numel(); ++i) {
      const double off = e(grad, i);
      const double size = std::abs(val(grad)[i]) + off;
      store(sum, i, off + (narrow ? 2.1 * unit_roundoff(DType::bf16) * size : 0.0));
    }
  }
}

Bounds::Bounds(const Program& program, Arrays start)
    : program_(program), values_(std::move(start)) {
  for (const ValueInfo& info : program.values) {
    errors_.emplace_back(size_t(info.value.shape.numel()), 0.0);
  }
}

void Bounds::run(size_t op) {
  const Op& next = program_.ops[op];
  const bool in_place =
      std::holds_alternative<SgdUpdate>(next) || std::holds_alternative<AdamUpdate>(next) ||
      std::holds_alternative<BatchNorm>(next) || std::holds_alternative<GlobalNorm>(next);
  const auto bound = [&] { std::visit(Rules{program_, values_, errors_}, next); };
  if (in_place) bound();
  reference_.run(program_, op, values_);
  if (!in_place) bound();
}

}  // namespace ridgeline::test
