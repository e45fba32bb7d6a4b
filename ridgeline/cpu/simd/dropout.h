#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu::simd {

// y[i] = Philox{seed, stream}.uniform(first + i) >= p ? x[i] * scale : 0;  y may be x
template <typename T>
struct DropoutArgs {
  const T* x;
  T* y;
  uint64_t seed, stream, first;
  float p;
  T scale;
};

template <typename T>
using DropoutKernel = void (*)(const DropoutArgs<T>&, Range elements);

template <typename T>
DropoutKernel<T> dropout_kernel();

}  // namespace ridgeline::cpu::simd
