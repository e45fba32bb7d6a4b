#pragma once

// The barrier of a whole grid whose blocks are all resident.

#include "ridgeline/cuda/generate/device/numbers.cuh"

namespace ridgeline::generated {

// The word's upper bit flips at each barrier: block 0 adds what brings the ones of the others to
// 2^31. The other bits must be 0 before the first launch, and are so again behind every barrier. No
// two launches use it at a time.
class GridBarrier {
 public:
  // By all threads of a block, before its first sync().
  __device__ explicit GridBarrier(u32* word) : word_(word), seen_(0) {
    if (threadIdx.x == 0) seen_ = load() & kUpper;
    part_ = blockIdx.x == 0 ? kUpper - (gridDim.x - 1) : 1;
  }

  // What threads of the block wrote before is seen by all threads of the grid after wait().
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
