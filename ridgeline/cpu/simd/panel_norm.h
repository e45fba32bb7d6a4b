#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"

// Normalisations (ops/norm.h) of a linear layer's outputs x[n, features] in panels. As in gemm.h,
// each call computes a range of features on the calling thread.
namespace ridgeline::cpu::simd {

// y = (x - mean) * rstd * gamma + beta
template <typename T>
struct PanelNormArgs {
  const T* x;             // panels
  T* y;                   // panels
  const T *gamma, *beta;  // [features], each may be null
  int64_t n, features;
  // Over samples: the moments of each, for whole panels. Over the batch: those of each feature,
  // which batch() writes.
  T *mean, *rstd;
  // The following are for batch().
  double epsilon = 0, momentum = 0;
  T *running_mean = nullptr, *running_var = nullptr;  // [features]
};

template <typename T>
struct PanelNormGradArgs {
  const T* x;            // panels
  T* dy;                 // panels; becomes the gradient of x
  const T* gamma;        // [features], may be null
  const T *mean, *rstd;  // as in PanelNormArgs
  int64_t n, features;
  T *dgamma, *dbeta;  // [features], each may be null
  bool add = false;   // adds to dgamma and dbeta
};

// The contribution of some features to the moments of each sample, for whole panels.
struct PanelMoments {
  double* mean;     // of these features; 0 if not centred
  double* squares;  // the sum of the squares about it
  bool centred = true;
};

// Sums or means of g and g * xhat for each sample of whole panels, where g = dy * gamma and
// xhat = (x - mean) * rstd.
template <typename T>
struct PanelSlopes {
  T *level, *tilt;
};

template <typename T>
struct PanelNormFunctions {
  // Over samples: each pass has two calls, between which threads that divide the features add up
  // what they have found.
  void (*moments)(const PanelNormArgs<T>&, Range features, const PanelMoments&);
  void (*forward)(const PanelNormArgs<T>&, Range features);
  // slopes() returns sums over `features`, and the gradients of gamma and beta.
  void (*slopes)(const PanelNormGradArgs<T>&, Range features, const PanelSlopes<T>& sums);
  void (*grad)(const PanelNormGradArgs<T>&, Range features, const PanelSlopes<T>& means);
  // Over the batch.
  void (*batch)(const PanelNormArgs<T>&, Range features);
  void (*batch_grad)(const PanelNormGradArgs<T>&, Range features);
};

template <typename T>
const PanelNormFunctions<T>& panel_norm_functions();

}  // namespace ridgeline::cpu::simd
