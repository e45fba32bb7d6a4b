#pragma once

// Copies from global to shared memory that run beside the thread that asked (cp.async, sm_80 and
// newer). A thread sees its own copies after waiting for them; others need a barrier besides.

#include "ridgeline/cuda/device/cluster.cuh"

namespace ridgeline::cuda {

// 16 bytes, through L2 only: sees what other blocks wrote before the last grid barrier. To an
// address in shared memory, or a place there.
__device__ inline void copy_async_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void copy_async_16(void* to, const void* from) {
  copy_async_16(shared_address(to), from);
}
// Four bytes; on older GPUs by the thread itself.
__device__ inline void copy_async_4(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
#else
  *static_cast<float*>(to) = *static_cast<const float*>(from);
#endif
}
// `valid` of kBytes (4, 8 or 16) bytes, and zeros for the rest.
template <int kBytes>
__device__ inline void copy_async_or_zero(uint32_t to, const void* from, int valid) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(valid),
                 "n"(kBytes)
                 : "memory");
  }
}
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kLeft of the groups committed last are under way.
template <int kLeft>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace ridgeline::cuda
