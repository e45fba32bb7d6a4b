#pragma once

#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/sgd.h"

namespace ridgeline::cuda {

// The constants of one launch, read from device memory once per thread.
template <typename A>
struct SgdRates {
  A lr, scale, momentum, decay;
  bool nesterov;

  __device__ explicit SgdRates(const SgdSettings& s)
      : lr(A(s.lr[*s.tick])),
        scale(s.grad_scale != nullptr ? A(*s.grad_scale) : A(1)),
        momentum(A(s.momentum)),
        decay(A(s.decay)),
        nesterov(s.nesterov) {}
};

// Updates w and, if there is one, m of element i by its gradient dw. Returns the new w, or the old
// one if this step is skipped.
template <typename T, typename A>
__device__ A sgd_element(const SgdRates<A>& rates, T* w, A* m, int64_t i, A dw) {
  const A old = A(w[i]);
  if (rates.scale == A(0)) return old;
  A g = dw * rates.scale + rates.decay * old;
  if (m != nullptr) {
    const A momentum = rates.momentum * A(m[i]) + g;
    m[i] = momentum;
    g = rates.nesterov ? g + rates.momentum * momentum : momentum;
  }
  const A next = old - rates.lr * g;
  w[i] = T(next);
  return next;
}

}  // namespace ridgeline::cuda
