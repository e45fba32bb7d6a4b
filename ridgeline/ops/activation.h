#pragma once

#include <string>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// none: x, for a fused kernel without an activation; no op has it.
// gelu: x * Phi(x), the exact erf form.  silu: x * sigmoid(x).  leaky_relu: x, or parameter * x
// below 0.  elu: x, or parameter * (e^x - 1) below 0.  softplus: log(1 + e^x).
// hardswish: x * min(max(x + 3, 0), 6) / 6.
enum class ActivationKind : uint8_t {
  none,
  relu,
  tanh,
  sigmoid,
  gelu,
  silu,
  leaky_relu,
  elu,
  softplus,
  hardswish
};

const char* name(ActivationKind kind);

// The derivative is taken at the output for relu, tanh and sigmoid, at the input for the others.
constexpr bool saves_output(ActivationKind kind) {
  return kind == ActivationKind::relu || kind == ActivationKind::tanh ||
         kind == ActivationKind::sigmoid;
}

// Whether the function needs a number besides x: the slope of leaky_relu, the alpha of elu.
constexpr bool has_parameter(ActivationKind kind) {
  return kind == ActivationKind::leaky_relu || kind == ActivationKind::elu;
}
constexpr double standard_parameter(ActivationKind kind) {
  return kind == ActivationKind::leaky_relu ? 0.01 : kind == ActivationKind::elu ? 1.0 : 0.0;
}

// Rough cost of one element, for the roofline: what the polynomial of a SIMD kernel takes.
constexpr double flops_per_element(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::relu:
      return 1.0;
    case ActivationKind::leaky_relu:
      return 2.0;
    case ActivationKind::hardswish:
      return 5.0;
    default:
      return 20.0;
  }
}

// "elu" or "elu,1": the attributes that distinguish two ops of a program.
std::string activation_attributes(ActivationKind kind, double parameter);

// y = f(x), element by element
struct Activation {
  ActivationKind kind = ActivationKind::relu;
  Value x, y;
  double parameter = standard_parameter(kind);  // 0 unless has_parameter(kind)

  static constexpr const char* kName = "activation";
  Values reads() const { return {x}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return activation_attributes(kind, parameter); }
  double flops() const { return flops_per_element(kind) * double(y.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(y); }
};

// dx = dy * f'(saved);  saved is y or x, see saves_output
struct ActivationGrad {
  ActivationKind kind = ActivationKind::relu;
  Value saved, dy, dx;
  double parameter = standard_parameter(kind);

  static constexpr const char* kName = "activation_grad";
  Values reads() const { return {saved, dy}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return activation_attributes(kind, parameter); }
  double flops() const {
    const bool cheap = saves_output(kind) || flops_per_element(kind) < 20;
    const double each = kind == ActivationKind::gelu ? 30.0 : cheap ? 3.0 : 20.0;
    return each * double(dx.shape.numel());
  }
  double bytes() const { return size_of(saved) + size_of(dy) + size_of(dx); }
};

}  // namespace ridgeline
