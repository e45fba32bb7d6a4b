#include <algorithm>
#include <cmath>
#include <numbers>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

// Phi, the distribution function of the standard normal; erfc keeps the lower tail accurate.
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_pdf(double x) {
  return std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double value(ActivationKind kind, double parameter, double x) {
  switch (kind) {
    case ActivationKind::none:
      return x;
    case ActivationKind::relu:
      return x < 0 ? 0.0 : x;  // keeps NaN
    case ActivationKind::tanh:
      return std::tanh(x);
    case ActivationKind::sigmoid:
      return sigmoid(x);
    case ActivationKind::gelu:
      return x * normal_cdf(x);
    case ActivationKind::silu:
      return x * sigmoid(x);
    case ActivationKind::leaky_relu:
      return x < 0 ? parameter * x : x;
    case ActivationKind::elu:
      return x < 0 ? parameter * std::expm1(x) : x;
    case ActivationKind::softplus:
      return std::log1p(std::exp(-std::abs(x))) + (x < 0 ? 0.0 : x);
    case ActivationKind::hardswish:
      return x * std::clamp(x + 3.0, 0.0, 6.0) / 6.0;
  }
  return 0;
}

// Returns f' from the saved value: y for relu, tanh and sigmoid, x for the others.
double derivative(ActivationKind kind, double parameter, double saved) {
  switch (kind) {
    case ActivationKind::none:
      return 1.0;
    case ActivationKind::relu:
      return saved > 0 ? 1.0 : 0.0;
    case ActivationKind::tanh:
      return 1.0 - saved * saved;
    case ActivationKind::sigmoid:
      return saved * (1.0 - saved);
    case ActivationKind::gelu:
      return normal_cdf(saved) + saved * normal_pdf(saved);
    case ActivationKind::silu:
      return sigmoid(saved) * (1.0 + saved * sigmoid(-saved));
    case ActivationKind::leaky_relu:
      return saved > 0 ? 1.0 : parameter;
    case ActivationKind::elu:
      return saved > 0 ? 1.0 : parameter * std::exp(saved);
    case ActivationKind::softplus:
      return sigmoid(saved);
    case ActivationKind::hardswish:
      return saved < -3 ? 0.0 : saved > 3 ? 1.0 : saved / 3.0 + 0.5;
  }
  return 0;
}

std::unique_ptr<Step> prepare_activation(const Activation& op, ReferenceBinding& binding) {
  return make_step([kind = op.kind, parameter = op.parameter, x = binding.reads(op.x),
                    y = binding.writes(op.y)]() mutable {
    x.load();
    for (int64_t i = 0; i < y.size(); ++i) y[i] = value(kind, parameter, x[i]);
    y.store();
  });
}

std::unique_ptr<Step> prepare_activation_grad(const ActivationGrad& op, ReferenceBinding& binding) {
  return make_step([kind = op.kind, parameter = op.parameter, saved = binding.reads(op.saved),
                    dy = binding.reads(op.dy), dx = binding.writes(op.dx)]() mutable {
    saved.load();
    dy.load();
    for (int64_t i = 0; i < dx.size(); ++i) dx[i] = dy[i] * derivative(kind, parameter, saved[i]);
    dx.store();
  });
}

}  // namespace

KernelTable activation_reference() {
  return {reference_kernel(prepare_activation), reference_kernel(prepare_activation_grad)};
}

}  // namespace ridgeline::cpu
