#pragma once

#include <string>

#include "ridgeline/ops/op.h"

// Kernels over signals (images of height 1) make these demands on their ops.
namespace ridgeline::cuda {

inline bool is_row(const Image& image) { return image.h == 1; }
inline bool leaves_row(const Slide& down) { return down.kernel == 1 && down.pad == 0; }

// Whether this is a non-overlapping pool of three positions.
inline bool is_pool3(const PoolShape& pool) {
  return is_row(pool.in) && leaves_row(pool.window.h) && pool.window.w == Slide{3, 3, 0, 1};
}

inline std::string refuse_signal_conv(const Conv2dShape& shape) {
  if (!is_row(shape.in) || !leaves_row(shape.window.h)) return "convolves along one axis";
  if (shape.window.w.stride != 1 || shape.window.w.dilation != 1 || shape.window.w.pad != 0) {
    return "takes stride 1 without padding or dilation";
  }
  if (shape.groups != 1) return "takes one group";
  return {};
}

}  // namespace ridgeline::cuda
