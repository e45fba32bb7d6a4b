#pragma once

#include "ridgeline/cuda/plain/curve.cuh"

namespace ridgeline::cuda {

// Out of line: written out for each of a thread's many numbers, the curves are most of a kernel.
static __device__ __noinline__ float less_common_curve(Curve curve, float x) {
  return curve_value(curve, x);
}

__device__ inline float compact_curve(Curve curve, float x) {
  if (curve == Curve::relu) return curve_value(Curve::relu, x);
  return curve == Curve::none ? x : less_common_curve(curve, x);
}

}  // namespace ridgeline::cuda
