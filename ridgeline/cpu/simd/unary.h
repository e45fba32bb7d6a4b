#pragma once

#include <cstdint>

#include "ridgeline/ops/unary.h"

namespace ridgeline::cpu::simd {

template <typename T>
struct UnaryFunctions {
  void (*value)(UnaryKind kind, const T* x, T* y, int64_t count);                   // y may be x
  void (*gradient)(UnaryKind kind, const T* x, const T* dy, T* dx, int64_t count);  // dx may be dy
};

template <typename T>
const UnaryFunctions<T>& unary_functions();

}  // namespace ridgeline::cpu::simd
