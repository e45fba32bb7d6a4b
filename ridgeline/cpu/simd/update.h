#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/gemm.h"

// Optimizer steps on flat arrays, for a range of elements.
namespace ridgeline::cpu::simd {

// g = scale * (the sum of parts, in their order); then as Sgd says.
template <typename T>
struct SgdArgs {
  const T* parts;  // `count` of them, `stride` elements apart
  int64_t count, stride;
  T* w;
  T* m;  // null without momentum
  Sgd<T> sgd;
  T scale = 1;
};

// g = scale * dw;  decoupled ? w -= lr * weight_decay * w : g += weight_decay * w
// m += (1-beta1)(g-m);  v += (1-beta2)(g*g-v);  w -= rate * m / (sqrt(v * v_factor) + epsilon)
template <typename T>
struct AdamArgs {
  const T* dw;
  T *w, *m, *v;
  T scale, lr, weight_decay;
  bool decoupled;
  T beta1_rest, beta2_rest;  // 1 - beta
  T rate, v_factor;          // lr / (1-beta1^t), 1 / (1-beta2^t)
  T epsilon;
};

template <typename T>
struct UpdateKernels {
  void (*sgd)(const SgdArgs<T>&, Range elements);
  void (*adam)(const AdamArgs<T>&, Range elements);
};

template <typename T>
const UpdateKernels<T>& update_kernels();

}  // namespace ridgeline::cpu::simd
