#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu::simd {

// Sums and products of ops/join.h, element by element.
template <typename T>
struct JoinFunctions {
  // y = scale * (xs[0] + xs[1] + ...), added in this order
  void (*add)(const T* const* xs, int64_t count, T scale, T* y, Range elements);
  // y = a * b
  void (*multiply)(const T* a, const T* b, T* y, Range elements);
};

template <typename T>
const JoinFunctions<T>& join_functions();

}  // namespace ridgeline::cpu::simd
