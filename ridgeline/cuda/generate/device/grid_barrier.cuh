#pragma once

// A barrier over a whole grid whose blocks are all resident.

#include "ridgeline/cuda/generate/device/numbers.cuh"

namespace ridgeline::generated {

// The word's highest bit flips at each barrier: block 0 adds what is missing from the ones of the
// other blocks to 2^31. The other bits must be 0 before the first launch, and are 0 again after
// every barrier. No two launches may use it at the same time.
class GridBarrier {
 public:
  // Called by all threads of a block, before its first sync().
  __device__ explicit GridBarrier(u32* word) : word_(word), seen_(0) {
    if (threadIdx.x == 0) seen_ = load() & kUpper;
    part_ = blockIdx.x == 0 ? kUpper - (gridDim.x - 1) : 1;
  }

  // Writes that threads of the block made before this are visible to all threads of the grid after
  // wait().
  __device__ void arrive() {
    __syncthreads();
    if (threadIdx.x == 0)
      asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(word_), "r"(part_) : "memory");
  }
  __device__ void wait() {
    if (threadIdx.x == 0) {
#ifdef RIDGELINE_BOUNDED_WAIT
      u32 spins = 0;
      while ((load() & kUpper) == seen_) {
        if (++spins > (1u << 22)) __trap();
      }
#else
      while ((load() & kUpper) == seen_) {
      }
#endif
      seen_ ^= kUpper;
    }
    __syncthreads();
  }

 private:
  static constexpr u32 kUpper = 0x80000000u;
  __device__ u32 load() const {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word_) : "memory");
    return value;
  }

  u32* word_;
  u32 seen_, part_;
};

}  // namespace ridgeline::generated
