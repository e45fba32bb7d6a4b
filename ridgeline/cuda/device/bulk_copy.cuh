#pragma once

#include "ridgeline/cuda/device/mbarrier.cuh"

namespace ridgeline::cuda {

// Copies `bytes` (a multiple of 16) from global to this block's shared memory by TMA, and counts
// them at `barrier`. sm_90 and up.
__device__ inline void bulk_load(void* destination, const void* source, uint32_t bytes,
                                 Mbarrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1], %2, [%3];" ::"r"(smem_address(destination)),
      "l"(source), "r"(bytes), "r"(smem_address(barrier))
      : "memory");
}

// Copies from shared to global memory, as part of this thread's group of stores. The block's shared
// memory must stay valid until all of them are complete.
__device__ inline void bulk_store(void* destination, const void* source, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(destination),
      "r"(smem_address(source)), "r"(bytes)
      : "memory");
}
__device__ inline void bulk_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace ridgeline::cuda
