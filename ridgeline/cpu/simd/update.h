#pragma once

#include <cmath>
#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/gemm.h"
#include "ridgeline/ops/update.h"

// Optimizer steps on flat arrays, for a range of elements.
namespace ridgeline::cpu::simd {

// g = scale * (the sum of parts, in their order); then the update of Sgd.
template <typename T>
struct SgdArgs {
  const T* parts;  // `count` of them, `stride` elements apart
  int64_t count, stride;
  T* w;
  T* m;  // null without momentum
  Sgd<T> sgd;
  T scale = 1;
};

// decoupled ? w -= lr * weight_decay * w : g += weight_decay * w
// m += (1-beta1)(g-m);  v += (1-beta2)(g*g-v);  w -= rate * m / (sqrt(v * v_factor) + epsilon)
template <typename T>
struct Adam {
  T lr = 0, weight_decay = 0;
  bool decoupled = false;
  T beta1_rest = 0, beta2_rest = 0;  // 1 - beta
  T rate = 0, v_factor = 0;          // lr / (1-beta1^t), 1 / (1-beta2^t)
  T epsilon = 0;

  Adam() = default;
  // Step t, counted from 1.
  Adam(const AdamUpdate& op, double rate_now, int64_t t)
      : lr(T(rate_now)),
        weight_decay(T(op.weight_decay)),
        decoupled(op.decoupled),
        beta1_rest(T(1 - op.beta1)),
        beta2_rest(T(1 - op.beta2)),
        rate(T(rate_now / (1.0 - std::pow(op.beta1, double(t))))),
        v_factor(T(1.0 / (1.0 - std::pow(op.beta2, double(t))))),
        epsilon(T(op.epsilon)) {}
};

// g as in SgdArgs; then the update of Adam.
template <typename T>
struct AdamArgs {
  const T* parts;
  int64_t count, stride;
  T *w, *m, *v;
  Adam<T> adam;
  T scale = 1;
};

template <typename T>
struct UpdateFunctions {
  void (*sgd)(const SgdArgs<T>&, Range elements);
  void (*adam)(const AdamArgs<T>&, Range elements);
  double (*squares)(const T* of, int64_t count);  // their sum
};

template <typename T>
const UpdateFunctions<T>& update_functions();

}  // namespace ridgeline::cpu::simd
