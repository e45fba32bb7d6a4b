#pragma once

#include "ridgeline/cuda/device/mbarrier.cuh"

// Values in uniform registers, for loops whose every instruction counts.
namespace ridgeline::cuda {

// A value that is the same for all of a warp, in words that the compiler knows to say so: what is
// made from it stays in uniform registers, and is neither moved there before each wgmma (which kept
// it waiting) nor worked out anew in every round of a loop, as addresses in shared memory are.
template <typename T>
__device__ inline T uniform(T value) {
  return __shfl_sync(~0u, value, 0);
}

}  // namespace ridgeline::cuda
