#pragma once

// Which tiles of a phase a block takes.

#include "ridgeline/cuda/generate/device/numbers.cuh"

namespace ridgeline::generated {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

// Reads the thread index again at every use. Otherwise values derived from it, above all addresses,
// would be computed before the loop over steps and occupy registers in all phases.
__device__ inline int thread_of() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
__device__ inline int lane_of() { return thread_of() & 31; }
__device__ inline int warp_of() { return thread_of() >> 5; }

// Hands out the tiles of a phase whose blocks would otherwise be done at different times: each
// takes the next one that is left. `counter` is zero when the phase begins.
class Tickets {
 public:
  // Whether a block barrier must precede next().
  static constexpr bool kNeedsBarrier = true;
  // `taken` are two words of shared memory.
  __device__ Tickets(u32* counter, int* taken, int block, int blocks)
      : counter_(counter), taken_(taken), now_(block), blocks_(blocks) {}

  // The block's tile, counted from the first one of the product at hand.
  __device__ int tile() const { return now_ - base_; }
  // Called at a tile's beginning; put(), a block barrier and next() follow at its end.
  __device__ int draw() const {
    int drawn = 0;
    if (thread_of() == 0)
      asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;"
                   : "=r"(drawn)
                   : "l"(counter_)
                   : "memory");
    return drawn;
  }
  __device__ void put(int drawn) {
    odd_ ^= 1;
    if (thread_of() == 0) taken_[odd_] = blocks_ + drawn;
  }
  __device__ void next() { now_ = taken_[odd_]; }
  // Goes on to the product whose tiles follow.
  __device__ void pass(int tiles) { base_ += tiles; }

 private:
  u32* counter_;
  int* taken_;
  int now_, blocks_, base_ = 0, odd_ = 0;
};
// Tiles that blocks take in turns.
class Turns {
 public:
  static constexpr bool kNeedsBarrier = false;
  __device__ Turns(int first, int stride) : now_(first), stride_(stride) {}
  __device__ int tile() const { return now_; }
  __device__ int draw() const { return 0; }
  __device__ void put(int) {}
  __device__ void next() { now_ += stride_; }
  __device__ void pass(int) {}

 private:
  int now_, stride_;
};

}  // namespace ridgeline::generated
