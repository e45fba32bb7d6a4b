#pragma once

#include "ridgeline/cuda/plain/window.h"
#include "ridgeline/ops/conv.h"
#include "ridgeline/ops/pool.h"

namespace ridgeline::cuda {

inline Axis axis_of(const Slide& slide) {
  return {int(slide.kernel), int(slide.stride), int(slide.pad), int(slide.dilation)};
}

inline ConvGeometry geometry_of(const Conv2dShape& shape, int64_t n) {
  const Image in = shape.in, out = shape.out();
  return {int(n),
          int(in.c),
          int(in.h),
          int(in.w),
          int(out.c),
          int(out.h),
          int(out.w),
          int(shape.group_in()),
          int(shape.group_out()),
          axis_of(shape.window.h),
          axis_of(shape.window.w)};
}

inline PoolGeometry geometry_of(const PoolShape& shape, int64_t n) {
  const Image in = shape.in, out = shape.out();
  return {int(n),
          int(in.c),
          int(in.h),
          int(in.w),
          int(out.h),
          int(out.w),
          axis_of(shape.window.h),
          axis_of(shape.window.w)};
}

}  // namespace ridgeline::cuda
