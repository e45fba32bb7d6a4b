#pragma once

#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/device/shared_matrix.cuh"
#include "ridgeline/cuda/recurrent/exchange.cuh"

// A thread's share of a chunk of a slot on its way to shared memory: kCount words of 16 bytes,
// kApart of them from one to the next, in both places.
namespace ridgeline::cuda::recurrent {

template <int kCount, int kApart>
__device__ inline void ask_for_words(uint4* to, const uint4* from) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) copy_async_16(to + kApart * i, from + kApart * i);
}

// Until the words, which have been copied, are those that were handed over: asks again for those
// that had not come. By whole warps; how often.
template <int kCount, int kApart>
__device__ inline int await_words(uint4* here, const uint4* from) {
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
