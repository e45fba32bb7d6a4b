// Bounds of activations: an error of the input is multiplied by the largest slope, and each
// function is rounded like a good polynomial.
#include <numbers>

#include "tests/support/bounds_rules.h"

namespace ridgeline::test {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// 1 if x may be on either side of `corner`, otherwise 0.
double at_corner(double x, double off, double corner) {
  return off > 0 && std::abs(x - corner) <= off ? 1.0 : 0.0;
}

}  // namespace

void Rules::operator()(const Activation& op) const {
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    const double x = val(op.x)[i], y = std::abs(val(op.y)[i]), off = e(op.x, i);
    double error = 0;
    switch (op.kind) {
      case ActivationKind::none:
        error = off;
        break;
      case ActivationKind::relu:
        error = x <= -off ? 0.0 : off;
        break;
      case ActivationKind::tanh:
        error = off + kUlps * u(op.x) * y;
        break;
      case ActivationKind::sigmoid:
        error = 0.25 * off + kUlps * u(op.x) * y;
        break;
      case ActivationKind::gelu:  // |f'| <= 1.13; the tail of Phi is as good as Phi near 1
        error = 1.13 * off + kUlps * u(op.x) * std::abs(x);
        break;
      case ActivationKind::silu:  // |f'| <= 1.1; the sigmoid may underflow before y does
        error = 1.1 * off + (kUlps + 1) * u(op.x) * y + std::abs(x) * smallest_normal(op.x.dtype);
        break;
      case ActivationKind::leaky_relu:
        error = std::max(1.0, op.parameter) * off + 2 * u(op.x) * y;
        break;
      case ActivationKind::elu:
        error = std::max(1.0, op.parameter) * off + kUlps * u(op.x) * y;
        break;
      case ActivationKind::softplus:
        error = off + kUlps * u(op.x) * y;
        break;
      case ActivationKind::hardswish:  // |f'| <= 1.5; x / 6 + 1 / 2 is near 0 at -3
        error = 1.5 * off + 4 * u(op.x) * std::abs(x);
        break;
    }
    store(op.y, i, error);
  }
}

void Rules::operator()(const ActivationGrad& op) const {
  for (int64_t i = 0; i < op.dx.shape.numel(); ++i) {
    const double saved = val(op.saved)[i], off = e(op.saved, i);
    double slope = 0, slope_error = 0;  // f' and its bound
    switch (op.kind) {
      case ActivationKind::none:
        slope = 1;
        break;
      case ActivationKind::relu:
        slope = saved > 0 ? 1 : 0;
        slope_error = off > 0 && std::abs(saved) <= off ? 1 : 0;
        break;
      case ActivationKind::tanh:
        slope = 1 - saved * saved;
        slope_error = 2 * std::abs(saved) * off + off * off + 2 * u(op.dy);
        break;
      case ActivationKind::sigmoid:
        slope = saved * (1 - saved);
        slope_error = std::abs(1 - 2 * saved) * off + off * off + 3 * u(op.dy) * std::abs(saved);
        break;
      case ActivationKind::gelu: {  // |f''| <= 0.8
        const double pdf =
            std::exp(-0.5 * saved * saved) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
        slope = 0.5 * std::erfc(-saved / std::numbers::sqrt2) + saved * pdf;
        slope_error = 0.8 * off + kUlps * u(op.dy);
        break;
      }
      case ActivationKind::silu: {  // |f''| <= 0.5; the two terms cancel near -1.28
        const double s = sigmoid(saved), terms = s * (1 + std::abs(saved) * sigmoid(-saved));
        slope = s * (1 + saved * sigmoid(-saved));
        slope_error = 0.5 * off + 2 * kUlps * u(op.dy) * terms +
                      (1 + std::abs(saved)) * smallest_normal(op.dy.dtype);
        break;
      }
      case ActivationKind::leaky_relu:
        slope = saved > 0 ? 1 : op.parameter;
        slope_error = at_corner(saved, off, 0) * std::abs(1 - op.parameter) +
                      u(op.dy) * std::abs(op.parameter);
        break;
      case ActivationKind::elu:
        slope = saved > 0 ? 1 : op.parameter * std::exp(saved);
        slope_error = at_corner(saved, off, 0) * std::abs(1 - op.parameter) +
                      std::abs(slope) * (std::expm1(off) + kUlps * u(op.dy));
        break;
      case ActivationKind::softplus:
        slope = sigmoid(saved);
        slope_error = 0.25 * off + kUlps * u(op.dy) * slope;
        break;
      case ActivationKind::hardswish: {
        const bool inside = std::abs(saved) <= 3;
        slope = inside ? saved / 3 + 0.5 : saved > 0 ? 1 : 0;
        slope_error = off / 3 + 0.5 * (at_corner(saved, off, 3) + at_corner(saved, off, -3)) +
                      (inside ? 6 * u(op.dy) : 0.0);
        break;
      }
    }
    const double dy = std::abs(val(op.dy)[i]), dy_error = e(op.dy, i);
    const double error = dy * slope_error + (std::abs(slope) + slope_error) * dy_error;
    store(op.dx, i, error + u(op.dy) * (dy * std::abs(slope) + error));
  }
}

}  // namespace ridgeline::test
