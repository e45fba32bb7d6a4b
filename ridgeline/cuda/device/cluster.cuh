#pragma once

// Thread-block clusters (sm_90): barriers of the whole cluster, and stores into another block's
// shared memory that are counted on an mbarrier there.

#include <cstdint>

#include "ridgeline/cuda/device/mbarrier.cuh"

namespace ridgeline::cuda {

__device__ inline uint32_t shared_address(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}

// Synchronises all threads of all blocks of the cluster and orders shared and global memory among
// them.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// Writes 16 bytes at `address` and counts them on `barrier`; both are in the same block of the
// cluster (addresses from cluster_address). A thread that waits for the barrier's phase sees the
// bytes.
__device__ inline void store_async_16(uint32_t address, uint4 v, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, "
      "[%5];" ::"r"(address),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
      : "memory");
}

// A phase ends when one thread has called expect() and that many bytes have arrived, in either
// order. One thread initialises the barrier, and cluster_sync makes it visible.
struct ByteBarrier {
  uint64_t state;

  __device__ void init() {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(
            shared_address(this))
        : "memory");
  }
  __device__ void expect(uint32_t bytes) { expect_at(shared_address(this), bytes); }
  // Waits for the end of the phase of this parity (the first phase has parity 0).
  __device__ void wait(uint32_t parity) { wait_at(shared_address(this), parity); }

  // These operations take an address of shared memory.
  static __device__ void expect_at(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
  }
  static __device__ void wait_at(uint32_t barrier, uint32_t parity) {
    mbarrier_wait_at(barrier, parity);
  }
};

}  // namespace ridgeline::cuda
