#pragma once

#include "ridgeline/cuda/device/mbarrier.cuh"

// How blocks of a cluster hand over without a release. A release to the cluster waits until all
// that a thread wrote has arrived: 0.4 us and more on an H200, once for every arrival. Where
// nothing written by ordinary stores is handed over, there is nothing to wait for. sm_90 and up.
namespace ridgeline::cuda {

// Arrives at the cluster's barrier to say no more than that this thread has come so far (with
// mbarrier_init_fence before it, also that barriers are initialised). Waited for by cluster_wait.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

// Writes 8 bytes at `address` and counts them at `barrier`, both of the same block (addresses by
// cluster_address). Whoever waits for the barrier's phase sees them.
__device__ inline void store_async_8(uint32_t address, float2 value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(address),
      "f"(value.x), "f"(value.y), "r"(barrier)
      : "memory");
}

}  // namespace ridgeline::cuda
