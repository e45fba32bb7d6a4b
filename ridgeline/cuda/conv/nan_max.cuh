#pragma once

namespace ridgeline::cuda {

// The larger of two numbers; NaN if either is NaN.
__device__ inline float nan_max(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
#else
  return a > b || a != a ? a : b;
#endif
}

}  // namespace ridgeline::cuda
