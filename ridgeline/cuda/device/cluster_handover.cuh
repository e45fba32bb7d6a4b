#pragma once

#include "ridgeline/cuda/device/mbarrier.cuh"

// Hand-over between blocks of a cluster without a release. A release at cluster scope waits until
// everything that a thread wrote has arrived, which takes 0.4 us and more per arrival on an H200.
// The wait is not needed if nothing written by ordinary stores is handed over. sm_90 and up.
namespace ridgeline::cuda {

// Arrives at the cluster's barrier without ordering memory: it only states that this thread has
// come this far (and, after mbarrier_init_fence, that barriers are initialised). cluster_wait waits
// for it.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

// Writes 8 bytes at `address` and counts them at `barrier`; both are in the same block (addresses
// from cluster_address). A thread that waits for the barrier's phase sees them.
__device__ inline void store_async_8(uint32_t address, float2 value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(address),
      "f"(value.x), "f"(value.y), "r"(barrier)
      : "memory");
}

}  // namespace ridgeline::cuda
