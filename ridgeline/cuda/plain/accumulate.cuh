#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace ridgeline::cuda {

// The accumulator type of T: fp64 for fp64, fp32 for everything narrower.
template <typename T>
struct Accumulate {
  using type = float;
};
template <>
struct Accumulate<double> {
  using type = double;
};
template <typename T>
using Accumulated = typename Accumulate<T>::type;

// Instantiates a launcher for every float type.
#define RIDGELINE_CUDA_FOR_FLOATS(MACRO) \
  MACRO(double) MACRO(float) MACRO(__nv_bfloat16) MACRO(__half)

}  // namespace ridgeline::cuda
