#include <cmath>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

double unary_value(UnaryKind kind, double x) {
  switch (kind) {
    case UnaryKind::exp:
      return std::exp(x);
    case UnaryKind::log:
      return std::log(x);
    case UnaryKind::sqrt:
      return std::sqrt(x);
    case UnaryKind::reciprocal:
      return 1 / x;
    case UnaryKind::sin:
      return std::sin(x);
    case UnaryKind::floor:
      return std::floor(x);
    case UnaryKind::round:
      return std::nearbyint(x);
    case UnaryKind::step:
      return x > 0 ? 1 : x <= 0 ? 0 : x;
  }
  return 0;
}

double unary_derivative(UnaryKind kind, double x) {
  switch (kind) {
    case UnaryKind::exp:
      return std::exp(x);
    case UnaryKind::log:
      return 1 / x;
    case UnaryKind::sqrt:
      return 0.5 / std::sqrt(x);
    case UnaryKind::reciprocal:
      return -1 / (x * x);
    case UnaryKind::sin:
      return std::cos(x);
    case UnaryKind::floor:
    case UnaryKind::round:
    case UnaryKind::step:
      break;
  }
  return 0;
}

std::unique_ptr<Step> prepare_unary(const Unary& op, ReferenceBinding& binding) {
  return make_step([kind = op.kind, x = binding.reads(op.x), y = binding.writes(op.y)]() mutable {
    x.load();
    for (int64_t i = 0; i < y.size(); ++i) y[i] = unary_value(kind, x[i]);
    y.store();
  });
}

std::unique_ptr<Step> prepare_unary_grad(const UnaryGrad& op, ReferenceBinding& binding) {
  return make_step([kind = op.kind, x = binding.reads(op.x), dy = binding.reads(op.dy),
                    dx = binding.writes(op.dx)]() mutable {
    x.load();
    dy.load();
    for (int64_t i = 0; i < dx.size(); ++i) dx[i] = dy[i] * unary_derivative(kind, x[i]);
    dx.store();
  });
}

}  // namespace

KernelTable unary_reference() {
  return {reference_kernel(prepare_unary), reference_kernel(prepare_unary_grad)};
}

}  // namespace ridgeline::cpu
