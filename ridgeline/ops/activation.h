#pragma once

#include <string>

#include "ridgeline/ops/value.h"

namespace ridgeline {

enum class ActivationKind { relu, tanh, sigmoid, gelu };  // gelu: x * Phi(x), the exact erf form

const char* name(ActivationKind kind);
ActivationKind parse_activation(std::string_view text);  // throws usage

// The derivative is taken at the output for relu, tanh and sigmoid, at the input for gelu.
constexpr bool saves_output(ActivationKind kind) { return kind != ActivationKind::gelu; }

// Rough cost of one element, for the roofline: what the polynomial of a SIMD kernel takes.
constexpr double flops_per_element(ActivationKind kind) {
  return kind == ActivationKind::relu ? 1.0 : 20.0;
}

// y = f(x), element by element
struct Activation {
  ActivationKind kind = ActivationKind::relu;
  Value x, y;

  static constexpr const char* kName = "activation";
  Values reads() const { return {x}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return name(kind); }
  double flops() const { return flops_per_element(kind) * double(y.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(y); }
};

// dx = dy * f'(saved);  saved is y or x, see saves_output
struct ActivationGrad {
  ActivationKind kind = ActivationKind::relu;
  Value saved, dy, dx;

  static constexpr const char* kName = "activation_grad";
  Values reads() const { return {saved, dy}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return name(kind); }
  double flops() const {
    const double each = kind == ActivationKind::gelu ? 30.0 : 3.0;
    return each * double(dx.shape.numel());
  }
  double bytes() const { return size_of(saved) + size_of(dy) + size_of(dx); }
};

}  // namespace ridgeline
