// Bounds of functions of one number: an error of the input is multiplied by the slope near it, and
// each function is rounded like a good polynomial.
#include "tests/support/bounds_rules.h"

namespace ridgeline::test {
namespace {

// f(x) or f'(x), and how far it is off if x is by `off`.
struct Point {
  double value, error;
};

Point value_of(UnaryKind kind, double x, double off, double u) {
  switch (kind) {
    case UnaryKind::exp:
      return {std::exp(x), std::exp(x) * (std::expm1(off) + kUlps * u)};
    case UnaryKind::log:
      return {std::log(x), -std::log1p(-off / x) + kUlps * u * std::abs(std::log(x))};
    case UnaryKind::sqrt:
      return {std::sqrt(x), std::sqrt(x) - std::sqrt(x - off) + 2 * u * std::sqrt(x)};
    case UnaryKind::reciprocal:
      return {1 / x, off / (std::abs(x) * (std::abs(x) - off)) + 2 * u / std::abs(x)};
    case UnaryKind::sin:
      return {std::sin(x), off + kUlps * u};
    case UnaryKind::floor:
    case UnaryKind::round:
    case UnaryKind::step:
      break;
  }
  const double y = kind == UnaryKind::floor   ? std::floor(x)
                   : kind == UnaryKind::round ? std::nearbyint(x)
                                              : double(x > 0);
  return {y, off > 0 ? std::ceil(off) : 0.0};
}

double largest(DType dtype) {
  return dtype == DType::fp64   ? 0x1.fffffffffffffp1023
         : dtype == DType::fp16 ? 65504
                                : 0x1.fffffep127;
}

Point slope_of(UnaryKind kind, double x, double off, double u) {
  switch (kind) {
    case UnaryKind::exp:
      return value_of(kind, x, off, u);
    case UnaryKind::log:
      return value_of(UnaryKind::reciprocal, x, off, u);
    case UnaryKind::sqrt: {
      const double slope = 0.5 / std::sqrt(x);
      return {slope, 0.5 / std::sqrt(x - off) - slope + 4 * u * slope};
    }
    case UnaryKind::reciprocal: {
      const double near = std::abs(x) - off, slope = 1 / (x * x);
      return {-slope, 1 / (near * near) - slope + 4 * u * slope};
    }
    case UnaryKind::sin:
      return {std::cos(x), off + kUlps * u};
    case UnaryKind::floor:
    case UnaryKind::round:
    case UnaryKind::step:
      break;
  }
  return {0, 0};
}

}  // namespace

void Rules::operator()(const Unary& op) const {
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    // Above the largest number of the type, infinity is right.
    const bool fits = std::abs(val(op.y)[i]) <= largest(op.y.dtype);
    const Point y = value_of(op.kind, val(op.x)[i], e(op.x, i), u(op.x));
    fits ? store(op.y, i, y.error) : void(err(op.y)[size_t(i)] = INFINITY);
  }
}

void Rules::operator()(const UnaryGrad& op) const {
  for (int64_t i = 0; i < op.dx.shape.numel(); ++i) {
    const auto [slope, slope_error] = slope_of(op.kind, val(op.x)[i], e(op.x, i), u(op.x));
    const double dy = std::abs(val(op.dy)[i]), dy_error = e(op.dy, i);
    const double error = dy * slope_error + (std::abs(slope) + slope_error) * dy_error;
    store(op.dx, i, error + u(op.dy) * (dy * std::abs(slope) + error));
  }
}

}  // namespace ridgeline::test
