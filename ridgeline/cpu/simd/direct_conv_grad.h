#pragma once

#include "ridgeline/cpu/simd/direct_conv.h"

// The filters' gradient of a direct convolution (direct_conv.h): dw[o, c, u, v] is the product of
// dy's plane o and x's plane c, padded and shifted by u rows and v columns. Both have the pitch of
// the padded image, so that a plane is one contiguous run; vectors run along it and their lanes are
// added up once, after the last image. Sums of a few channels o by all taps v stay in registers.
namespace ridgeline::cpu::simd {

inline constexpr int64_t kMostGradTaps = 7;  // of a filter's row

// Elements of a padded plane: whole vectors of any length, with readable memory past the end.
template <typename T>
int64_t direct_plane(const DirectShape& shape) {
  const int64_t length = shape.padded_h() * shape.pitch() + 2 * kPanel<T>;
  return (length + kGroup<T> - 1) / kGroup<T> * kGroup<T>;
}

template <typename T>
struct DirectGradArgs {
  DirectShape shape;
  int64_t n;
  const T *x, *dy;          // in plain layout
  T *padded_x, *padded_dy;  // [n, c or k] planes
  T *dw, *db;               // db may be null
};

template <typename T>
struct DirectGradFunctions {
  // Output channels whose sums are computed together, for a filter of this width.
  int64_t (*block)(int64_t kernel_w);
  // Elements of scratch for gradient().
  size_t (*scratch)(const DirectShape& shape);
  // Copies images [begin, end) of x and dy to their padded planes.
  void (*pad)(const DirectGradArgs<T>& args, Range images);
  // Computes dw of units: (block of outputs, input channel, row of the filter), the last fastest;
  // db of the blocks whose first unit is among them. Call it after pad() of all images.
  void (*gradient)(const DirectGradArgs<T>& args, Range units, T* scratch);
};
template <typename T>
const DirectGradFunctions<T>& direct_grad_functions();

}  // namespace ridgeline::cpu::simd
