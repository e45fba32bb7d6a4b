#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu::simd {

// Normalises samples of rows of channels, each as a whole (first the mean, then the squares about
// it), followed by relu and a max pool of three positions.
struct SignalNormArgs {
  int64_t channels, length;   // channels is a multiple of 16
  const float* x;             // [n, length, channels]
  const float *gamma, *beta;  // [length, channels]
  double epsilon;
  float* y;  // [n, channels, length / 3]: plain, for the linear layer that follows
};

void signal_norm(const SignalNormArgs& args, Range samples);

}  // namespace ridgeline::cpu::simd
