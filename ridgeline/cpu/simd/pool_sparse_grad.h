#pragma once

#include <type_traits>
#include <vector>

#include "ridgeline/cpu/simd/direct_conv.h"

// The gradients of a convolution under an activation and a max pool of 2 x 2. A window hands its
// gradient to one of its four pixels, and under relu often to none, so only a quarter of the
// products or less is left: runs of numbers, scaled and added up. Stride 1, no dilation, one group.
//
// Images lie channels last with their padding, so that the taps (v, c) of a filter's row are one
// run. dw[o, u] is the sum of x's runs at the pixels that got a gradient; a row of dx under a
// window is the sum of the filters' runs, by each output's gradient. Both stay in registers
// meanwhile.
namespace ridgeline::cpu::simd {

// A run to be scaled and added: where it begins, in elements from a base.
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
  const T *x, *a, *dy, *w;  // a: what the pool read; w: null without dx
  T *dx, *dw, *db;          // dx and db may be null
  // Scratch: x channels last [n][padded_h, pitch, c]; the runs of each image and output, as many as
  // windows at most, and their counts; the filters [k, kernel_h][zeros, run, zeros].
  T* map;
  ScaledRun<T>* runs;
  int64_t* counts;
  T* filters;

  int64_t windows() const { return (shape.out_h() / 2) * (shape.out_w() / 2); }
  // Elements, with room to read a vector past the end.
  int64_t map_size() const { return shape.padded_h() * shape.pitch() * shape.c + 2 * kPanel<T>; }
  int64_t filter_ld() const { return (shape.kernel_w + 2) * shape.c + 2 * kPanel<T>; }
  int64_t sums_ld() const { return shape.kernel_w * shape.c + 2 * kPanel<T>; }
};

// What a thread needs of its own: a map of dx, and its windows' runs by block of outputs, window
// and row of the window.
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
  // The filters of outputs [begin, end), as dx reads them.
  void (*arrange)(const PoolSparseGradArgs<T>& args, Range outputs);
  // Images [begin, end): their maps and runs, and dx unless null. After arrange() of all.
  void (*images)(const PoolSparseGradArgs<T>& args, Range images, const PoolSparseScratch<T>& own);
  // dw of units (output, row of the filter), the last fastest, in multiples of grain(), and db of
  // the outputs whose first unit is among them. After images() of all.
  int64_t (*grain)(const DirectShape& shape);
  void (*gradient)(const PoolSparseGradArgs<T>& args, Range units, const PoolSparseScratch<T>& own);
};
template <typename T>
const PoolSparseGradFunctions<T>& pool_sparse_grad_functions();

}  // namespace ridgeline::cpu::simd
