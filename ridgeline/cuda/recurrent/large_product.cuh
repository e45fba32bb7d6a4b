#pragma once

#include <utility>

#include "ridgeline/cuda/recurrent/group_product.cuh"
#include "ridgeline/cuda/recurrent/weight_tiles.cuh"

namespace ridgeline::cuda::recurrent {

// The inner extent of a warpgroup is divided into chunks of 128 places: the weights of the first 64
// stay in registers, those of the others in shared memory.
constexpr int kLargeChunks = 10, kLargeRing = 5;
constexpr int kLargeChunkSteps = 8;  // steps of 16 places
// The shared memory of both warpgroups: weights, and chunks of a panel in flight or in use.
constexpr int kLargeFloats = 2 * (kLargeChunks * 2048 + kLargeRing * 1024);

// partial[sample][row] of a warpgroup = its half of the block's weights . a panel's slot, 64 rows
// by 16 samples, by wgmma, for layers whose weights fill registers and shared memory. The panel is
// copied chunk by chunk through a ring buffer, in the slot's layout. Each thread checks the words
// it copied itself, and reads those again that had not arrived. kGateShare: registers of a thread
// that applies gates. kTransposed: the rows' weights are adjacent in global memory, and also in
// shared memory.
template <typename T, int kGateShare, bool kTransposed>
class LargeProduct {
 public:
  static constexpr bool kByGroups = true;
  static constexpr int kProductRegisters = 252 - kGateShare / 2, kGateRegisters = kGateShare;
  static constexpr int kPanel = kPanelSamples, kRows = 64, kPitch = kRows + 4, kParts = 2;
  static constexpr int kPlaces = kLargeChunks * 16 * kLargeChunkSteps;  // per warpgroup
  using Slot = SwappedSlot<kPanel>;

  // line_of(place, line) returns the lines of the tile of weights that begins at a place: of a row,
  // or (kTransposed) of a place after it. `aligned`: all start at multiples of 16 bytes. `memory`
  // is the block's. `rotation`: which chunk comes first, so that not all blocks read the same
  // memory at once.
  template <typename LineOf>
  __device__ LargeProduct(uint4* memory, int group, int rotation, const LineOf& line_of,
                          bool aligned)
      : ring_(memory + group * kLargeRing * kChunkWords),
        tiles_(memory + 2 * kLargeRing * kChunkWords + group * kLargeChunks * kWeightTileWords),
        ring_address_(smem_address(ring_) / 16),
        tiles_address_(smem_address(tiles_) / 16),
        group_(group),
        rotation_(rotation % kLargeChunks) {
    const auto line = [&](int half, int c, int line) {
      return line_of(128 * chunk_at(c, rotation_) + half * kWeightTile, line);
    };
    const auto tile_at = [this](int c) { return tiles_ + c * kWeightTileWords; };
    // The second half is prefetched into L2 while the first is loaded, through the same shared
    // memory.
#pragma unroll 1
    for (int i = thread(); i < kLargeChunks * kWeightTile; i += 128) {
      line(1, i / kWeightTile, i % kWeightTile).prefetch();
    }
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      bring_weight_tiles<kLargeChunks>(
          tile_at, kGroupReady + group_, [&](int c, int in) { return line(half, c, in); }, aligned);
      if (half == 0) hold_weight_tiles<kTransposed>(tile_at, kGroupReady + group_, a_);
    }
    fence_async_proxy();
    named_barrier(kGroupReady + group_, 128);
  }

  // Runs all iterations, from this warpgroup's first word of a slot on. A warp adapts how long
  // after storing its sums it requests the next panel.
  template <typename Place, typename Advance>
  __device__ void multiply_iterations(Iteration iteration, int iterations, const Place& place,
                                      const Advance& advance, float* partials) const {
    const PassShape& shape = place.shape;
    float* own = partials + group_ * kPanel * kPitch;
    int pause = 0;
    if (iterations > 0) begin({iteration.slot, rotation_});
    while (iteration.count < iterations) {
      const int count = iteration.count, buffer = buffer_of(count, shape);
      const Panel panel(iteration.slot, rotation_);
      advance(iteration);
      float d[2][8];
      const int again = multiply(panel, d, std::make_integer_sequence<int, kLargeChunks>());
      if (count >= shape.buffers) named_barrier(kSumsFree + buffer, kBlockThreads);
      put(d, own + buffer * kParts * kPanel * kPitch);
      arrive_barrier(kSumsFull + buffer, kBlockThreads);
      if (iteration.count >= iterations) break;
      pause = again > 0 ? min(pause + min(again, 4) * kAgainMore, kLongestPause)
                        : max(pause - kAgainLess, 0);
      wait_cycles(pause);
      named_barrier(kGroupReady + group_, 128);  // the ring has been read
      begin({iteration.slot, rotation_});
    }
  }

 private:
  static constexpr int kHeld = kLargeChunkSteps / 2;                 // steps of k in registers
  static constexpr int kChunkWords = 2 * kLargeChunkSteps * kPanel;  // uint4s per chunk of a slot
  static constexpr int kThreadWords = kChunkWords / 128;
  static_assert(kHeld == 4 && kRows == kWeightTile);

  static __device__ int thread() { return threadIdx.x % 128; }
  // Keeps the compiler from holding values derived from this one, for which there are no registers.
  template <typename V>
  static __device__ V known_anew(V v) {
    asm volatile("" : "+r"(v));
    return v;
  }
  // The descriptor of an operand in shared memory; `address` is in units of 16 bytes.
  static __device__ uint64_t descriptor(uint32_t address) {
    return wgmma_descriptor(0, 16, 1024, 128) | address;
  }
  // The chunk of the slot that comes c-th.
  static __device__ int chunk_at(int c, int rotation) {
    const int at = c + rotation;
    return at < kLargeChunks ? at : at - kLargeChunks;
  }
  // This warpgroup's part of a panel of a slot.
  struct Panel {
    const uint4* slot;
    int rotation;
    __device__ Panel(const uint4* slot, int rotation) : slot(slot), rotation(rotation) {
      this->rotation = known_anew(rotation);
    }
    // This thread's first word of the chunk that comes c-th.
    __device__ const uint4* at(int c) const {
      return slot + chunk_at(c, rotation) * kChunkWords + thread();
    }
  };
  // This thread's first word of the chunk's place in the ring.
  __device__ uint4* ring_at(int c) const { return ring_ + c % kLargeRing * kChunkWords + thread(); }

  __device__ void ask(int c, const Panel& panel) const {
    if (c < kLargeChunks) {
      copy_slot_async<kThreadWords, 128>(ring_at(c), panel.at(c));
    }
    copy_async_commit();
  }
  __device__ void begin(const Panel& panel) const {
#pragma unroll
    for (int c = 0; c < kLargeRing; ++c) ask(c, panel);
  }

  template <int... kC>
  __device__ int multiply(const Panel& panel, float (&d)[2][8],
                          std::integer_sequence<int, kC...>) const {
    const int again = (multiply_chunk<kC>(panel, d) + ...);
    wgmma_wait<0>();
    wgmma_keep(d[0]);
    wgmma_keep(d[1]);
    return again;
  }
  // Waits for a chunk and starts its products, those of its two halves into separate accumulators,
  // and requests another chunk into the slot of the last but one. Returns how many reads had to be
  // repeated.
  template <int kC>
  __device__ int multiply_chunk(const Panel& panel, float (&d)[2][8]) const {
    copy_async_wait<kLargeRing - 1 - (kC < 2 ? kC : 2)>();
    const int again = await_slot<kThreadWords, 128>(ring_at(kC), panel.at(kC));
    fence_async_proxy();
    named_barrier(kGroupReady + group_, 128);
    wgmma_fence();
    const uint32_t b = known_anew(ring_address_ + kC % kLargeRing * kChunkWords);
    const uint32_t a = known_anew(tiles_address_ + kC * kWeightTileWords);
#pragma unroll
    for (int s = 0; s < kHeld; ++s) {
      wgmma_registers<T>(d[0], a_[kC][s], descriptor(b + 2 * s), kC + s > 0);
      wgmma<T, kTransposed, false>(d[1], descriptor(a + (kTransposed ? 128 : 2) * s),
                                   descriptor(b + 8 * kPanel + 2 * s), kC + s > 0);
    }
    wgmma_commit();
    if (kC >= 2) ask(kC - 2 + kLargeRing, panel);  // all threads have multiplied that chunk
    wgmma_wait<1>();
    return again;
  }
  static __device__ void put(const float (&d)[2][8], float* partial) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, row = thread() / 32 * 16 + g;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      partial[(i / 4 * 8 + 2 * t + i % 2) * kPitch + row + i / 2 % 2 * 8] = d[0][i] + d[1][i];
    }
  }

  uint32_t a_[kLargeChunks][kHeld][4];
  uint4 *ring_, *tiles_;
  uint32_t ring_address_, tiles_address_;  // in shared memory, in units of 16 bytes
  int group_, rotation_;
};

}  // namespace ridgeline::cuda::recurrent
