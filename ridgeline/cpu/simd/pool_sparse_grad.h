#pragma once

#include <type_traits>
#include <vector>

#include "ridgeline/cpu/simd/direct_conv.h"

// The gradients of a convolution followed by an activation and a 2 x 2 max pool. A window passes
// its gradient to one of its four pixels, and with relu often to none, so at most a quarter of the
// products is left: runs of numbers, scaled and added up. Stride 1, no dilation, one group.
//
// Images are channels last with their padding, so that the taps (v, c) of a filter's row are one
// run. dw[o, u] is the sum of x's runs at the pixels that received a gradient; a row of dx under a
// window is the sum of the filters' runs, weighted by each output's gradient. Both sums stay in
// registers.
namespace ridgeline::cpu::simd {

// A run to be scaled and added; `place` is its beginning, in elements from a base.
template <typename T>
struct ScaledRun {
  std::conditional_t<sizeof(T) == 4, int32_t, int64_t> place;  // as wide as T: lists are long
  T value;
};

inline constexpr int64_t kWindowBlock = 16;  // output channels whose runs stay in the first cache

template <typename T>
struct PoolSparseGradArgs {
  DirectShape shape;
  int64_t n;
  SimdActivation act;
  const T *x, *a, *dy, *w;  // a: the pool's input; w: null without dx
  T *dx, *dw, *db;          // dx and db may be null
  // Scratch: x channels last [n][padded_h, pitch, c]; the runs of each image and output, at most
  // one per window, and their counts; the filters [k, kernel_h][zeros, run, zeros].
  T* map;
  ScaledRun<T>* runs;
  int64_t* counts;
  T* filters;

  int64_t windows() const { return (shape.out_h() / 2) * (shape.out_w() / 2); }
  // Elements, with a readable vector past the end.
  int64_t map_size() const { return shape.padded_h() * shape.pitch() * shape.c + 2 * kPanel<T>; }
  int64_t filter_ld() const { return (shape.kernel_w + 2) * shape.c + 2 * kPanel<T>; }
  int64_t sums_ld() const { return shape.kernel_w * shape.c + 2 * kPanel<T>; }
};

// A thread's own scratch: a map of dx, and its windows' runs by block of outputs, window and row of
// the window.
template <typename T>
struct PoolSparseScratch {
  T* map;
  ScaledRun<T>* runs;
  int64_t* counts;
  T* sums;  // of its units

  static int64_t lists(const PoolSparseGradArgs<T>& args) {
    return (args.shape.k + kWindowBlock - 1) / kWindowBlock * args.windows() * 2;
  }
};

template <typename T>
struct PoolSparseGradFunctions {
  // Arranges the filters of outputs [begin, end) for dx.
  void (*arrange)(const PoolSparseGradArgs<T>& args, Range outputs);
  // Computes the maps and runs of images [begin, end), and dx unless null. Call it after arrange()
  // of all.
  void (*images)(const PoolSparseGradArgs<T>& args, Range images, const PoolSparseScratch<T>& own);
  // Computes dw of units (output, row of the filter), the last fastest, in multiples of grain(),
  // and db of the outputs whose first unit is among them. Call it after images() of all.
  int64_t (*grain)(const DirectShape& shape);
  void (*gradient)(const PoolSparseGradArgs<T>& args, Range units, const PoolSparseScratch<T>& own);
};
template <typename T>
const PoolSparseGradFunctions<T>& pool_sparse_grad_functions();

}  // namespace ridgeline::cpu::simd
