#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu::simd {

// Samples of rows of channels, each normalised as a whole (mean first, then the squares about it),
// relu, the largest of each three positions.
struct SignalNormArgs {
  int64_t channels, length;   // channels in 16s
  const float* x;             // [n, length, channels]
  const float *gamma, *beta;  // [length, channels]
  double epsilon;
  float* y;  // [n, channels, length / 3]: plain, for the linear layer that follows
};

void signal_norm(const SignalNormArgs& args, Range samples);

}  // namespace ridgeline::cpu::simd
