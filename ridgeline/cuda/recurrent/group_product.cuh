#pragma once

#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/device/shared_matrix.cuh"
#include "ridgeline/cuda/device/wgmma.cuh"
#include "ridgeline/cuda/device/wgmma_registers.cuh"
#include "ridgeline/cuda/recurrent/pass.cuh"

namespace ridgeline::cuda::recurrent {

// Named barriers of the two warpgroups, behind those of the sums.
enum { kGroupReady = 6 };

// What a warp that learns when to ask may wait for before its sums are put, in cycles: about what
// the products take that are under way then.
constexpr int kShortPause = 256;
// What it adds to its pause for each time it had to ask again, and what it takes off when it had
// not, in cycles.
constexpr int kAgainMore = 64, kAgainLess = 4;

// Shared memory of two panels.
constexpr int group_product_floats(int steps) { return 4 * 256 * steps; }

// partial[item][row] of a warpgroup = its share of the block's weights . a panel's slot, 64 rows by
// 32 items, by wgmma: the weights stay in registers, the panel is copied into shared memory as it
// lies in the slot, in chunks that are multiplied as they come. A share is kSteps times 16 places;
// where the extent has fewer, weights and slot are zero. A thread looks at the words it copied
// itself; those that have not come are asked for again.
template <typename T, int kSteps>
class GroupProduct {
 public:
  static constexpr bool kByGroups = true;
  static constexpr int kProductRegisters = 200, kGateRegisters = 104;
  static constexpr int kPanel = kWidePanelItems, kRows = 64, kPitch = kRows + 4, kParts = 2;
  static constexpr int kPlaces = 16 * kSteps;  // of a share
  using Slot = SwappedSlot<kPanel>;
  static constexpr int kShareWords = kSteps * 2 * kPanel;  // uint4s of a panel

  // two_of(row, place) gives the weights of a row at two places, the first of them even. `panels`
  // is the block's memory for two panels. `turned`: which chunk is the first, so that not all
  // blocks ask for the same memory at once.
  template <typename TwoAt, typename OctetAt>
  __device__ GroupProduct(uint4* panels, int group, int turned, const TwoAt& two_of,
                          const OctetAt& /*octet_of: of products that keep some in memory*/)
      : own_(panels + group * kShareWords + thread()), group_(group), turned_(turned % kChunks) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, row = thread() / 32 * 16 + g;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int place = 16 * (chunk_at(s / kChunkSteps) * kChunkSteps + s % kChunkSteps) + 2 * t;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 v = two_of(row + i % 2 * 8, place + i / 2 * 8);
        a_[s][i] = Pair<T>::pack(v.x, v.y);
      }
    }
  }

  // Turn after turn, from this warpgroup's first word of a slot on. A warp learns how long
  // after a panel has come to ask for the next: before this one's sums are put, or then.
  template <typename Place, typename Advance>
  __device__ void multiply_turns(Turn turn, int turns, const Place& place, const Advance& advance,
                                 float* partials) const {
    const PassShape& shape = place.shape;
    float* own = partials + group_ * kPanel * kPitch;
    int pause = 0;
    if (turns > 0) ask(turn.slot, 0);
    while (turn.count < turns) {
      const int count = turn.count, buffer = buffer_of(count, shape);
      const uint4* from = turn.slot;
      advance(turn);
      float d[16];
      int again = 0;
      copy_async_wait<1>();
      again += start_chunk(0, from, count & 1, d);
      copy_async_wait<0>();
      again += start_chunk(1, from, count & 1, d);
      pause = again > 0 ? min(pause + min(again, 4) * kAgainMore, kLongestPause)
                        : max(pause - kAgainLess, 0);
      const bool more = turn.count < turns, soon = pause <= kShortPause;
      const long long begun = clock64();
      const auto ask_in_time = [&] {
        while (clock64() - begun < pause) {
        }
        ask(turn.slot, turn.count & 1);
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

  // The same of a share without weights: its sums are zero.
  static __device__ void idle_turns(int turns, const PassShape& shape, int group, float* partials) {
    const float zeros[16] = {};
    for (int count = 0; count < turns; ++count) {
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
  static constexpr int kThreadWords = kChunkSteps * 2 * kPanel / 128;  // of a chunk
  static constexpr int kBufferWords = 2 * kShareWords;                 // of both warpgroups

  static __device__ int thread() { return threadIdx.x % 128; }
  // The chunk of the slot that comes c-th.
  __device__ int chunk_at(int c) const { return (c + turned_) % kChunks; }
  // The first of a thread's words of the chunk that comes c-th, in a slot or in shared memory.
  __device__ int words_at(int c) const { return chunk_at(c) * (kThreadWords * 128); }

  __device__ void ask(const uint4* slot, int buffer) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int at = words_at(c);
#pragma unroll
      for (int i = 0; i < kThreadWords; ++i) {
        copy_async_16(own_ + buffer * kBufferWords + at + 128 * i, slot + thread() + at + 128 * i);
      }
      copy_async_commit();
    }
  }

  static __device__ uint32_t largest(const uint4& v) { return max(max(v.x, v.y), max(v.z, v.w)); }

  // Until the thread's words of a chunk are here: asks again for those that are not. How often.
  __device__ int await(uint4* here, const uint4* from) const {
    for (int again = 0;; ++again) {
      bool absent[kThreadWords], any = false;
#pragma unroll
      for (int i = 0; i < kThreadWords; ++i) {
        absent[i] = largest(load_shared_128(smem_address(here + 128 * i))) == kAbsent;
        any = any || absent[i];
      }
      if (!__any_sync(~0u, any)) return again;
#pragma unroll
      for (int i = 0; i < kThreadWords; ++i) {
        if (absent[i]) copy_async_16(here + 128 * i, from + 128 * i);
      }
      copy_async_commit();
      copy_async_wait<0>();
    }
  }

  // Starts the products of a chunk that has been asked for, when it is here. How often it had to be
  // asked for again.
  __device__ int start_chunk(int c, const uint4* slot, int buffer, float (&d)[16]) const {
    const int at = words_at(c);
    const int again = await(own_ + buffer * kBufferWords + at, slot + thread() + at);
    fence_async_proxy();
    named_barrier(kGroupReady + group_, 128);
    wgmma_fence();
    const uint64_t b =
        wgmma_descriptor(smem_address(own_ - thread() + buffer * kBufferWords + at), 16, 1024, 128);
#pragma unroll
    for (int s = 0; s < kChunkSteps; ++s) {
      wgmma_registers<T>(d, a_[c * kChunkSteps + s], b + uint64_t(s / 4 * (8 * kPanel) + s % 4 * 2),
                         c + s > 0);
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

  uint32_t a_[kSteps][4];
  uint4* own_;  // the thread's first word of shared memory
  int group_, turned_;
};

}  // namespace ridgeline::cuda::recurrent
