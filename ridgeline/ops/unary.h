#pragma once

#include "ridgeline/ops/value.h"

namespace ridgeline {

// Functions of one number that are no activations: kernels do not fuse them. round: half to even;
// step: 1 above 0, 0 elsewhere, and NaN of NaN. floor, round and step have a derivative of 0.
enum class UnaryKind : uint8_t { exp, log, sqrt, reciprocal, sin, floor, round, step };

inline constexpr UnaryKind kUnaryKinds[] = {UnaryKind::exp,        UnaryKind::log, UnaryKind::sqrt,
                                            UnaryKind::reciprocal, UnaryKind::sin, UnaryKind::floor,
                                            UnaryKind::round,      UnaryKind::step};

const char* name(UnaryKind kind);

// Rough cost of one element, as flops_per_element() of an activation.
constexpr double flops_per_element(UnaryKind kind) {
  const bool polynomial =
      kind == UnaryKind::exp || kind == UnaryKind::log || kind == UnaryKind::sin;
  const bool division = kind == UnaryKind::sqrt || kind == UnaryKind::reciprocal;
  return polynomial ? 20.0 : division ? 4.0 : 1.0;
}

// y = f(x), element by element
struct Unary {
  UnaryKind kind = UnaryKind::exp;
  Value x, y;

  static constexpr const char* kName = "unary";
  Values reads() const { return {x}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return name(kind); }
  double flops() const { return flops_per_element(kind) * double(y.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(y); }
};

// dx = dy * f'(x)
struct UnaryGrad {
  UnaryKind kind = UnaryKind::exp;
  Value x, dy, dx;

  static constexpr const char* kName = "unary_grad";
  Values reads() const { return {x, dy}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return name(kind); }
  double flops() const { return (2 + flops_per_element(kind)) * double(dx.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(dy) + size_of(dx); }
};

}  // namespace ridgeline
