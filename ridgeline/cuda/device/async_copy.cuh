#pragma once

// Asynchronous copies from global to shared memory (cp.async, sm_80 and newer). A thread sees its
// own copies after waiting for them; other threads also need a barrier.

#include "ridgeline/cuda/device/cluster.cuh"

namespace ridgeline::cuda {

// Copies 16 bytes through L2 only, so that it sees what other blocks wrote before the last grid
// barrier. The destination is a shared-memory address or a pointer.
__device__ inline void copy_async_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void copy_async_16(void* to, const void* from) {
  copy_async_16(shared_address(to), from);
}
// Copies four bytes; on older GPUs the thread loads and stores them itself.
__device__ inline void copy_async_4(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
#else
  *static_cast<float*>(to) = *static_cast<const float*>(from);
#endif
}
// Copies `valid` of kBytes (4, 8 or 16) bytes and fills the rest with zeros.
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

// Waits until at most kLeft of the most recently committed groups are in flight.
template <int kLeft>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace ridgeline::cuda
