#include <cmath>

#include "ridgeline/cpu/reference/kernel.h"
#include "ridgeline/cpu/reference/score.h"
#include "ridgeline/cpu/reference/target.h"

namespace ridgeline::cpu {
namespace {

double loss_of(LossFn fn, double x, double target, double weight, double delta) {
  const double d = x - target, size = std::abs(d);
  switch (fn) {
    case LossFn::mae:
      return size;
    case LossFn::huber:
      return size <= delta ? 0.5 * d * d : delta * (size - 0.5 * delta);
    case LossFn::bce_with_logits: {  // log(1 + e^-x) without overflow on either side
      const double positive = std::log1p(std::exp(-std::abs(x))) + (x < 0 ? -x : 0.0);
      return (1 - target) * x + (1 + (weight - 1) * target) * positive;
    }
    case LossFn::quantile:
      return d < 0 ? -weight * d : (1 - weight) * d;
  }
  return 0;
}

double slope_of(LossFn fn, double x, double target, double weight, double delta) {
  const double d = x - target;
  const double sign = d > 0 ? 1.0 : d < 0 ? -1.0 : d;  // 0 for 0, NaN for NaN
  switch (fn) {
    case LossFn::mae:
      return sign;
    case LossFn::huber:
      return std::abs(d) > delta ? delta * sign : d;
    case LossFn::bce_with_logits:
      return (1 - target) - (1 + (weight - 1) * target) / (1 + std::exp(x));
    case LossFn::quantile:
      return d < 0 ? weight * sign : (1 - weight) * sign;
  }
  return 0;
}

// weights[c % k], or 1 without weights.
class ColumnWeights {
 public:
  ColumnWeights(const Value& value, const Binding& binding)
      : values_(binding.read(value).as<const double>()), count_(value ? value.shape.numel() : 1) {}
  double operator[](int64_t c) const { return values_ != nullptr ? values_[c % count_] : 1.0; }

 private:
  const double* values_;
  int64_t count_;
};

std::unique_ptr<Step> prepare_loss(const ElementwiseLoss& op, ReferenceBinding& binding) {
  const int64_t out = op.x.shape[1];
  return make_step([n = op.x.shape[0], out, fn = op.fn, delta = op.delta, scale = op.scale,
                    weights = ColumnWeights(op.weights, binding), score = Score(binding, op),
                    target = Target(op.target, binding, out), rows = RowWeights(op, binding),
                    x = binding.reads(op.x)]() mutable {
    x.load();
    target.load();
    rows.load();
    double loss = 0;
    int32_t correct = 0;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < out; ++c) {
        loss += rows[r] * loss_of(fn, x[r * out + c], target(r, c), weights[c], delta);
      }
      if (target.is_label()) {
        correct += first_largest(x.data() + r * out, out) == target.label(r);
      }
    }
    score.write(scale * loss, correct);
  });
}

std::unique_ptr<Step> prepare_loss_grad(const ElementwiseLossGrad& op, ReferenceBinding& binding) {
  const int64_t out = op.x.shape[1];
  return make_step([n = op.x.shape[0], out, fn = op.fn, delta = op.delta, fixed = op.scale,
                    weights = ColumnWeights(op.weights, binding),
                    loss_scale = binding.read(op.loss_scale),
                    target = Target(op.target, binding, out), rows = RowWeights(op, binding),
                    x = binding.reads(op.x), dx = binding.writes(op.dx)]() mutable {
    x.load();
    target.load();
    rows.load();
    const double scale = fixed * first_or(loss_scale, 1.0);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < out; ++c) {
        const int64_t at = r * out + c;
        dx[at] = scale * rows[r] * slope_of(fn, x[at], target(r, c), weights[c], delta);
      }
    }
    dx.store();
  });
}

}  // namespace

KernelTable elementwise_loss_reference() {
  return {reference_kernel(prepare_loss), reference_kernel(prepare_loss_grad)};
}

}  // namespace ridgeline::cpu
