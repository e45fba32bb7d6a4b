#pragma once

#include "ridgeline/cuda/plain/activation.cuh"

namespace ridgeline::cuda {

// This function is not inlined: it would otherwise be repeated for each of a thread's many values
// and make up most of the code.
static __device__ __noinline__ float less_common_activation(ActivationFn activation, float x) {
  return activation_value(activation, x);
}

__device__ inline float compact_activation(ActivationFn activation, float x) {
  if (activation == ActivationFn::relu) return activation_value(ActivationFn::relu, x);
  return activation == ActivationFn::none ? x : less_common_activation(activation, x);
}

}  // namespace ridgeline::cuda
