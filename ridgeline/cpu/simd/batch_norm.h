#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu::simd {

// BatchNorm of ops/norm.h and its gradient, of x[n, channels, pixels]. Optional operands are null.
template <typename T>
struct BatchNormArgs {
  int64_t n, channels, pixels;
  const T *x, *gamma, *beta;
  T *running_mean, *running_var;  // [channels], read and written
  T* y;
  T *mean, *rstd;  // [channels]
  double epsilon, momentum;
};

template <typename T>
struct BatchNormGradArgs {
  int64_t n, channels, pixels;
  const T *x, *gamma, *mean, *rstd, *dy;
  T *dx, *dgamma, *dbeta;  // dx may be x or dy
};

// `channels` begins on a multiple of kGroup where pixels is 1. Every sum has one order, however the
// channels are divided.
template <typename T>
struct BatchNormFunctions {
  void (*forward)(const BatchNormArgs<T>&, Range channels);
  void (*grad)(const BatchNormGradArgs<T>&, Range channels);
};

template <typename T>
const BatchNormFunctions<T>& batch_norm_functions();

}  // namespace ridgeline::cpu::simd
