#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu::simd {

// GroupNorm of ops/norm.h and its gradient. Run r holds the channels [first_channel(r),
// first_channel(r) + width / spatial) of a sample. Optional operands are null.
template <typename T>
struct GroupNormArgs {
  int64_t runs, groups, width, spatial;
  bool centred;
  const T *x, *gamma, *beta;
  T* y;
  T *mean, *rstd;  // [runs]
  double epsilon;

  int64_t first_channel(int64_t run) const { return run % groups * (width / spatial); }
};

template <typename T>
struct GroupNormGradArgs {
  int64_t runs, groups, width, spatial;
  bool centred;
  const T *x, *gamma, *mean, *rstd, *dy;  // mean: null if not centred
  T *dx, *dgamma, *dbeta;

  int64_t first_channel(int64_t run) const { return run % groups * (width / spatial); }
  int64_t channels() const { return groups * width / spatial; }
};

template <typename T>
struct GroupNormFunctions {
  void (*forward)(const GroupNormArgs<T>&, Range runs);
  void (*grad)(const GroupNormGradArgs<T>&, Range runs);              // dx
  void (*grad_weights)(const GroupNormGradArgs<T>&, Range channels);  // dgamma and dbeta
};

template <typename T>
const GroupNormFunctions<T>& group_norm_functions();

}  // namespace ridgeline::cpu::simd
