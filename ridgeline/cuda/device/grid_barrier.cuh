#pragma once

// Barriers: a named one among some warps of a block, and a split one (arrive, then wait) over a
// grid whose blocks are all resident (launched cooperatively).

#include <cstdint>

namespace ridgeline::cuda {

// Barrier `id` (1..15; 0 is __syncthreads) among `threads` threads of the block.
__device__ inline void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Counts towards that barrier without waiting.
__device__ inline void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// One counter that only grows: each block adds one per barrier. It must be 0 when the grid starts.
class GridBarrier {
 public:
  __device__ GridBarrier(uint32_t* counter, uint32_t blocks) : counter_(counter), blocks_(blocks) {}

  // By one thread, after a block barrier behind the writes to be seen.
  __device__ void arrive() {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter_) : "memory");
    target_ += blocks_;
  }

  // By the same thread; a block barrier must follow before other threads read.
  __device__ void wait() const {
    uint32_t seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter_) : "memory");
    } while (seen < target_);
  }

 private:
  uint32_t* counter_;
  uint32_t blocks_;
  uint32_t target_ = 0;
};

}  // namespace ridgeline::cuda
