#pragma once

#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/device/shared_matrix.cuh"
#include "ridgeline/cuda/recurrent/exchange.cuh"

// Asynchronous copies of a slot of the exchange (exchange.cuh) to shared memory. A thread copies
// kCount words of 16 bytes, which are kApart words apart in both memories.
namespace ridgeline::cuda::recurrent {

template <int kCount, int kApart>
__device__ inline void copy_slot_async(uint4* to, const uint4* from) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) copy_async_16(to + kApart * i, from + kApart * i);
}

// Waits until all copied words are valid: copies those again that the sender had not written yet.
// Called by whole warps; returns how many times it had to copy again.
template <int kCount, int kApart>
__device__ inline int await_slot(uint4* here, const uint4* from) {
  for (int again = 0;; ++again) {
    bool absent[kCount], any = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint4 v = load_shared_128(smem_address(here + kApart * i));
      absent[i] = max(max(v.x, v.y), max(v.z, v.w)) == kAbsent;
      any = any || absent[i];
    }
    if (!__any_sync(~0u, any)) return again;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (absent[i]) copy_async_16(here + kApart * i, from + kApart * i);
    }
    copy_async_commit();
    copy_async_wait<0>();
  }
}

}  // namespace ridgeline::cuda::recurrent
