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

// Dropout in panels (layout.h): y = keep * x, where keep[r, f] is the factor of element
// (first_row + r) * features + f, 0 or `scale`. y may be x.
template <typename T>
struct PanelDropoutArgs {
  const T* x;  // panels, [n, features]
  T *y, *keep;
  int64_t features, first_row;
  uint64_t seed, stream;
  float p;
  T scale;
};

template <typename T>
struct DropoutFunctions {
  void (*flat)(const DropoutArgs<T>&, Range elements);
  void (*panels)(const PanelDropoutArgs<T>&, Range features, int64_t n);
};

template <typename T>
const DropoutFunctions<T>& dropout_functions();

}  // namespace ridgeline::cpu::simd
