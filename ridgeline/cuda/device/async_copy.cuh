#pragma once

// Copies from global to shared memory that run beside the thread that asked (cp.async, sm_80 and
// newer). A thread sees its own copies after waiting for them; others need a barrier besides.

#include "ridgeline/cuda/device/cluster.cuh"

namespace ridgeline::cuda {

// 16 bytes, through L2 only: sees what other blocks wrote before the last grid barrier.
__device__ inline void copy_async_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kLeft of the groups committed last are under way.
template <int kLeft>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace ridgeline::cuda
