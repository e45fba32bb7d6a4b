#pragma once

// A split barrier (arrive, then wait) over a grid whose blocks are all resident (launched
// cooperatively).

#include <cstdint>

namespace ridgeline::cuda {

// One counter that only grows: each block adds one per barrier. It must be 0 when the grid starts.
class GridBarrier {
 public:
  __device__ GridBarrier(uint32_t* counter, uint32_t blocks) : counter_(counter), blocks_(blocks) {}

  // Called by one thread, after a block barrier that follows the writes to be seen.
  __device__ void arrive() {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter_) : "memory");
    target_ += blocks_;
  }

  // Called by the same thread; a block barrier must follow before other threads read.
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
