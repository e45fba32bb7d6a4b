#pragma once

#include "ridgeline/cuda/plain/curve.h"

namespace ridgeline::cuda {

// A is float or double; the overloads of CUDA's math library follow it.

// Phi, the distribution function of the standard normal; erfc keeps the lower tail exact.
template <typename A>
__device__ A normal_cdf(A x) {
  return A(0.5) * erfc(-x * A(0.70710678118654752440));
}

template <typename A>
__device__ A curve_value(Curve curve, A x) {
  switch (curve) {
    case Curve::relu:
      return x < A(0) ? A(0) : x;  // a NaN stays one
    case Curve::tanh:
      return tanh(x);
    case Curve::sigmoid:
      return A(1) / (A(1) + exp(-x));
    case Curve::gelu:
      return x * normal_cdf(x);
    case Curve::none:
      break;
  }
  return x;
}

// f' from what the forward pass saved: y for relu, tanh and sigmoid, x for gelu.
template <typename A>
__device__ A curve_slope(Curve curve, A saved) {
  switch (curve) {
    case Curve::relu:
      return saved > A(0) ? A(1) : A(0);
    case Curve::tanh:
      return A(1) - saved * saved;
    case Curve::sigmoid:
      return saved * (A(1) - saved);
    case Curve::gelu: {
      const A density = exp(A(-0.5) * saved * saved) * A(0.39894228040143267794);
      return normal_cdf(saved) + saved * density;
    }
    case Curve::none:
      break;
  }
  return A(1);
}

}  // namespace ridgeline::cuda
