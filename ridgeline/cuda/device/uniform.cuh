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

// mbarrier_wait for a barrier at this address in shared memory.
__device__ inline void mbarrier_wait_at(uint32_t barrier, uint32_t parity) {
  const auto ended = [&] {
    uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
  };
#ifdef RIDGELINE_BOUNDED_WAIT
  for (uint32_t spins = 0; !ended(); ++spins) {
    if (spins > (1u << 20)) __trap();
  }
#else
  while (!ended()) {
  }
#endif
}

}  // namespace ridgeline::cuda
