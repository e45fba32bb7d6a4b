#pragma once

#include "ridgeline/cuda/activation.h"

namespace ridgeline::cuda {

// The gradient of a convolution's output, of h x w pixels: `dy` itself, or, where the output went
// through an activation and a 2 x 2 max pool, what the pool's gradient `dy` of h/2 x w/2 pixels
// becomes there. `a` is what the activation gave. Pixels that the pool left out have none.
template <typename T>
struct OutputGrad {
  const T* dy = nullptr;
  const T* a = nullptr;  // null: dy as it is
  ActivationFn activation = ActivationFn::none;
};

}  // namespace ridgeline::cuda
