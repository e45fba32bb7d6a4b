#pragma once

#include "ridgeline/cuda/device/mbarrier.cuh"

// Values in uniform registers, for loops in which every instruction counts.
namespace ridgeline::cuda {

// Returns a value that is the same for the whole warp in a form that the compiler recognises as
// uniform. Values derived from it stay in uniform registers. They are not moved there before each
// wgmma, which stalled it, and not recomputed in every iteration of a loop, as shared-memory
// addresses are.
template <typename T>
__device__ inline T uniform(T value) {
  return __shfl_sync(~0u, value, 0);
}

}  // namespace ridgeline::cuda
