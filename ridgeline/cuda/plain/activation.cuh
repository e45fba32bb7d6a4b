#pragma once

#include "ridgeline/cuda/activation.h"

namespace ridgeline::cuda {

// A is float or double, which selects the overloads of CUDA's math library.

// Phi, the distribution function of the standard normal; erfc keeps the lower tail accurate.
template <typename A>
__device__ A normal_cdf(A x) {
  return A(0.5) * erfc(-x * A(0.70710678118654752440));
}

template <typename A>
__device__ A activation_value(ActivationFn activation, A x) {
  switch (activation) {
    case ActivationFn::relu:
      return x < A(0) ? A(0) : x;  // NaN stays NaN
    case ActivationFn::tanh:
      return tanh(x);
    case ActivationFn::sigmoid:
      return A(1) / (A(1) + exp(-x));
    case ActivationFn::gelu:
      return x * normal_cdf(x);
    case ActivationFn::none:
      break;
  }
  return x;
}

// f' from the value that the forward pass saved: y for relu, tanh and sigmoid, x for gelu.
template <typename A>
__device__ A activation_slope(ActivationFn activation, A saved) {
  switch (activation) {
    case ActivationFn::relu:
      return saved > A(0) ? A(1) : A(0);
    case ActivationFn::tanh:
      return A(1) - saved * saved;
    case ActivationFn::sigmoid:
      return saved * (A(1) - saved);
    case ActivationFn::gelu: {
      const A density = exp(A(-0.5) * saved * saved) * A(0.39894228040143267794);
      return normal_cdf(saved) + saved * density;
    }
    case ActivationFn::none:
      break;
  }
  return A(1);
}

}  // namespace ridgeline::cuda
