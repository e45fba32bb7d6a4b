#pragma once

#include "ridgeline/cuda/device/wgmma.cuh"
#include "ridgeline/cuda/device/wgmma_registers.cuh"
#include "ridgeline/cuda/recurrent/pass.cuh"
#include "ridgeline/cuda/recurrent/slot_copy.cuh"
#include "ridgeline/cuda/recurrent/weight_tiles.cuh"

namespace ridgeline::cuda::recurrent {

// Named barriers of the two warpgroups, numbered after those of the sums.
enum { kGroupReady = 6 };

// The longest pause, in cycles, that a warp may make before it stores its sums: about the time of
// the products that are in flight then.
constexpr int kShortPause = 256;
// The cycles that are added to the pause for each repeated read, and removed if there was none.
constexpr int kAgainMore = 64, kAgainLess = 4;

// The shared memory of two panels.
constexpr int group_product_floats(int steps) { return 4 * 256 * steps; }

// partial[sample][row] of a warpgroup = its share of the block's weights . a panel's slot, 64 rows
// by 32 samples, by wgmma. The weights stay in registers, and the panel is copied into shared
// memory in the slot's layout, in chunks that are multiplied as they arrive. A share is kSteps
// times 16 places; if the extent has fewer, weights and slot are zero. Each thread checks the words
// it copied itself, and reads those again that had not arrived.
template <typename T, int kSteps>
class GroupProduct {
 public:
  static constexpr bool kByGroups = true;
  static constexpr int kProductRegisters = 200, kGateRegisters = 104;
  static constexpr int kPanel = kWgmmaPanelSamples, kRows = 64, kPitch = kRows + 4, kParts = 2;
  static constexpr int kPlaces = 16 * kSteps;  // per share
  using Slot = SwappedSlot<kPanel>;
  static constexpr int kShareWords = kSteps * 2 * kPanel;  // uint4s of a panel

  // line_of(place, row) returns the weights of a row from a place on; `aligned`: all start at
  // multiples of 16 bytes. `panels` is the block's memory for two panels. `rotation`: which chunk
  // comes first, so that not all blocks read the same memory at once.
  template <typename LineOf>
  __device__ GroupProduct(uint4* panels, int group, int rotation, const LineOf& line_of,
                          bool aligned)
      : own_(panels + group * kShareWords + thread()),
        group_(group),
        rotation_(rotation % kChunks) {
    // Loads through the warpgroup's own panels, half of them at a time: the other warpgroup may be
    // finished and have requested its first panel.
    constexpr int kTiles = kSteps / 4;
    const auto tile_at = [&](int tile) {
      return panels + group * kShareWords + tile / (kTiles / 2) * kBufferWords +
             tile % (kTiles / 2) * kWeightTileWords;
    };
    bring_weight_tiles<kTiles>(
        tile_at, kGroupReady + group_,
        [&](int tile, int row) {
          const int chunk = chunk_at(4 * tile / kChunkSteps);
          return line_of(16 * (chunk * kChunkSteps + 4 * tile % kChunkSteps), row);
        },
        aligned);
    hold_weight_tiles<false>(tile_at, kGroupReady + group_, a_);
  }

  // Runs all iterations, from this warpgroup's first word of a slot on. A warp adapts how long
  // after a panel has arrived it requests the next: before this panel's sums are stored, or after.
  template <typename Place, typename Advance>
  __device__ void multiply_iterations(Iteration iteration, int iterations, const Place& place,
                                      const Advance& advance, float* partials) const {
    const PassShape& shape = place.shape;
    float* own = partials + group_ * kPanel * kPitch;
    int pause = 0;
    if (iterations > 0) ask(iteration.slot, 0);
    while (iteration.count < iterations) {
      const int count = iteration.count, buffer = buffer_of(count, shape);
      const uint4* from = iteration.slot;
      advance(iteration);
      float d[16];
      int again = 0;
      copy_async_wait<1>();
      again += start_chunk(0, from, count & 1, d);
      copy_async_wait<0>();
      again += start_chunk(1, from, count & 1, d);
      pause = again > 0 ? min(pause + min(again, 4) * kAgainMore, kLongestPause)
                        : max(pause - kAgainLess, 0);
      const bool more = iteration.count < iterations, soon = pause <= kShortPause;
      const long long begun = clock64();
      const auto ask_in_time = [&] {
        while (clock64() - begun < pause) {
        }
        ask(iteration.slot, iteration.count & 1);
      };
      if (more && soon) ask_in_time();
      wgmma_wait<0>();
      wgmma_keep(d);
      if (count >= shape.buffers) named_barrier(kSumsFree + buffer, kBlockThreads);
      put(d, own + buffer * kParts * kPanel * kPitch);
      arrive_barrier(kSumsFull + buffer, kBlockThreads);
      if (more && !soon) ask_in_time();
    }
  }

  // Serves a share without weights: its sums are zero.
  static __device__ void idle_iterations(int iterations, const PassShape& shape, int group,
                                         float* partials) {
    const float zeros[16] = {};
    for (int count = 0; count < iterations; ++count) {
      const int buffer = buffer_of(count, shape);
      if (count < shape.buffers) {
        put(zeros, partials + (buffer * kParts + group) * kPanel * kPitch);
      } else {
        named_barrier(kSumsFree + buffer, kBlockThreads);
      }
      arrive_barrier(kSumsFull + buffer, kBlockThreads);
    }
  }

 private:
  static constexpr int kChunks = 2, kChunkSteps = kSteps / kChunks;
  static constexpr int kThreadWords = kChunkSteps * 2 * kPanel / 128;  // per chunk
  static constexpr int kBufferWords = 2 * kShareWords;                 // of both warpgroups

  static __device__ int thread() { return threadIdx.x % 128; }
  // The chunk of the slot that comes c-th.
  __device__ int chunk_at(int c) const { return (c + rotation_) % kChunks; }
  // The first of a thread's words of the chunk that comes c-th, in a slot or in shared memory.
  __device__ int words_at(int c) const { return chunk_at(c) * (kThreadWords * 128); }

  __device__ void ask(const uint4* slot, int buffer) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int at = words_at(c);
      copy_slot_async<kThreadWords, 128>(own_ + buffer * kBufferWords + at, slot + thread() + at);
      copy_async_commit();
    }
  }

  // Waits for a requested chunk and starts its products. Returns how many reads had to be repeated.
  __device__ int start_chunk(int c, const uint4* slot, int buffer, float (&d)[16]) const {
    const int at = words_at(c);
    const int again =
        await_slot<kThreadWords, 128>(own_ + buffer * kBufferWords + at, slot + thread() + at);
    fence_async_proxy();
    named_barrier(kGroupReady + group_, 128);
    wgmma_fence();
    const uint64_t b =
        wgmma_descriptor(smem_address(own_ - thread() + buffer * kBufferWords + at), 16, 1024, 128);
#pragma unroll
    for (int s = 0; s < kChunkSteps; ++s) {
      wgmma_registers<T>(d, a_[(c * kChunkSteps + s) / 4][s % 4],
                         b + uint64_t(s / 4 * (8 * kPanel) + s % 4 * 2), c + s > 0);
    }
    wgmma_commit();
    return again;
  }
  static __device__ void put(const float (&d)[16], float* partial) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, row = thread() / 32 * 16 + g;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      partial[(i / 4 * 8 + 2 * t + i % 2) * kPitch + row + i / 2 % 2 * 8] = d[i];
    }
  }

  uint32_t a_[kSteps / 4][4][4];
  uint4* own_;  // this thread's first word of shared memory
  int group_, rotation_;
};

}  // namespace ridgeline::cuda::recurrent
