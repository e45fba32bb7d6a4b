#pragma once

#include "ridgeline/cuda/device/cluster.cuh"

// Loads from the shared memory of the cluster's blocks (addresses from cluster_address). sm_90.
namespace ridgeline::cuda {

__device__ inline uint4 load_cluster_16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared::cluster.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ inline float load_cluster(uint32_t address) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}

}  // namespace ridgeline::cuda
