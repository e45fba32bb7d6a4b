#include <cmath>
#include <numbers>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

// Phi, the distribution function of the standard normal; erfc keeps the lower tail exact.
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_pdf(double x) {
  return std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

double value(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::relu:
      return x < 0 ? 0.0 : x;  // a NaN stays one
    case ActivationKind::tanh:
      return std::tanh(x);
    case ActivationKind::sigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case ActivationKind::gelu:
      return x * normal_cdf(x);
  }
  return 0;
}

// f' from what the forward pass saved: y for relu, tanh and sigmoid, x for gelu.
double derivative(ActivationKind kind, double saved) {
  switch (kind) {
    case ActivationKind::relu:
      return saved > 0 ? 1.0 : 0.0;
    case ActivationKind::tanh:
      return 1.0 - saved * saved;
    case ActivationKind::sigmoid:
      return saved * (1.0 - saved);
    case ActivationKind::gelu:
      return normal_cdf(saved) + saved * normal_pdf(saved);
  }
  return 0;
}

std::unique_ptr<Step> prepare_activation(const Activation& op, ReferenceBinding& binding) {
  return make_step([kind = op.kind, x = binding.reads(op.x), y = binding.writes(op.y)]() mutable {
    x.load();
    for (int64_t i = 0; i < y.size(); ++i) y[i] = value(kind, x[i]);
    y.store();
  });
}

std::unique_ptr<Step> prepare_grad(const ActivationGrad& op, ReferenceBinding& binding) {
  return make_step([kind = op.kind, saved = binding.reads(op.saved), dy = binding.reads(op.dy),
                    dx = binding.writes(op.dx)]() mutable {
    saved.load();
    dy.load();
    for (int64_t i = 0; i < dx.size(); ++i) dx[i] = dy[i] * derivative(kind, saved[i]);
    dx.store();
  });
}

}  // namespace

KernelTable activation_reference() {
  return {reference_kernel(prepare_activation), reference_kernel(prepare_grad)};
}

}  // namespace ridgeline::cpu
