#pragma once

#include "ridgeline/cuda/activation.h"

namespace ridgeline::cuda {

// The gradient of a convolution's output of h x w pixels. It is `dy` itself or, if the output went
// through an activation and a 2 x 2 max pool, the gradient `dy` of h/2 x w/2 pixels taken back
// through both; `a` is the output of the activation. Pixels that the pool left out have a gradient
// of zero.
template <typename T>
struct OutputGrad {
  const T* dy = nullptr;
  const T* a = nullptr;  // null: dy is used directly
  ActivationFn activation = ActivationFn::none;
};

}  // namespace ridgeline::cuda
