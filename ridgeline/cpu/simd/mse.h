#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"

namespace ridgeline::cpu::simd {

// Squared distances of x[n, out] from targets: numbers like x, or labels that stand for one-hot
// rows. Everything is batch-major.
template <typename T>
struct MseArgs {
  const T* x;
  const T* target;       // null with labels
  const int32_t* label;  // [n]; null with numbers
  int64_t n, out;
  // Sums over each group of kGroup rows, not scaled; null if not wanted.
  double* loss;      // [groups_of(n)]
  int32_t* correct;  // [groups_of(n)]: samples whose largest x is first reached at the label
  // dx = factor * (x - target); null if not wanted.
  T* dx;
  T factor;
};

template <typename T>
struct MseFunctions {
  void (*run)(const MseArgs<T>&, Range groups);
};

template <typename T>
const MseFunctions<T>& mse_functions();

}  // namespace ridgeline::cpu::simd
