#pragma once

#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/device/shared_matrix.cuh"
#include "ridgeline/cuda/recurrent/pass.cuh"

namespace ridgeline::cuda::recurrent {

// The blocks of a cluster that holds a whole layer, and the samples it takes at a time: a tile of
// `mma`.
constexpr int kLayerBlocks = 16, kLayerPanelSamples = 8;

// The shared memory for the states of this many panels, with their barriers.
constexpr int cluster_slot_floats(int chunks, int panels) {
  return 2 * panels * (128 * chunks + 2);
}

// The states of a cluster's panels, [32 places][sample][vec8] of 16 bytes, in the shared memory of
// each of its blocks, which send each other theirs. A panel has two buffers, which alternate: when
// a block sends a timestep's state, it has received all parts of the previous one, each of which
// was computed after the state before that had been read.
template <typename T, int kChunks>
class ClusterSlots {
 public:
  static constexpr int kWords = 32 * kChunks;

  template <typename Place>
  __device__ ClusterSlots(uint4* memory, const Place& place)
      : panels_(place.group_panels()),
        slots_(shared_address(memory)),
        barriers_(slots_ + uint32_t(2 * panels_ * kWords * sizeof(uint4))),
        bytes_(uint32_t(kLayerBlocks * kLayerPanelSamples * place.shape.units * sizeof(T))) {}

  // Called by all threads of a block, before the cluster is synchronised. Parts that are never sent
  // are zero.
  template <typename Place>
  __device__ void begin(uint4* memory, const Place& place, const T* h0) const {
    for (int i = int(threadIdx.x); i < 2 * panels_ * kWords; i += kBlockThreads) {
      const int word = i % kWords, slot = i / kWords, sample = word / 4 % kLayerPanelSamples;
      const int in_group = slot * kLayerPanelSamples + sample;
      float v[8] = {};
      if (h0 != nullptr && slot < panels_ && in_group < place.samples) {
        load_vec8(h0 + int64_t(place.first_sample + in_group) * place.s.hidden,
                  word / 32 * 4 + word % 4, place.s.hidden, v);
      }
      memory[i] = uint4{Pair<T>::pack(v[0], v[1]), Pair<T>::pack(v[2], v[3]),
                        Pair<T>::pack(v[4], v[5]), Pair<T>::pack(v[6], v[7])};
    }
    if (threadIdx.x != 0) return;
    auto* barriers = reinterpret_cast<ByteBarrier*>(memory + 2 * panels_ * kWords);
    for (int i = 0; i < 2 * panels_; ++i) {
      barriers[i].init();
      barriers[i].expect(bytes_);
    }
  }

  // Called by the warps that multiply: waits for a panel's state at a timestep and returns its
  // address.
  __device__ uint32_t await(int step, int panel) const {
    const int slot = slot_of(step, panel);
    if (step > 0) {
      ByteBarrier::wait_at(barrier(slot), uint32_t(step - 1) >> 1 & 1);
    }
    return slots_ + uint32_t(slot * kWords * sizeof(uint4));
  }
  // Called by one thread when the state has arrived: expects the next one in the same buffer.
  __device__ void expect(int step, int panel) const {
    if (step > 0) ByteBarrier::expect_at(barrier(slot_of(step, panel)), bytes_);
  }

  // The word of a slot that holds this thread's two units, for threads that apply gates; negative
  // if it has none.
  template <typename Place>
  static __device__ int own_word(const Place& place) {
    const PassShape& shape = place.shape;
    if (place.unit_in_block >= shape.units) return -1;
    if (place.thread >> shape.pair_bits >= kLayerPanelSamples) return -1;
    const int vec8 = (place.tile * shape.units + place.unit_in_block) / 8;
    return vec8 / 4 * 32 + 4 * place.in_panel(0) + vec8 % 4;
  }

  // Called by all of them: sends this thread's two units of a panel's state at a timestep, from
  // block `tile` to all blocks. Four threads have the same word, and each sends it to a quarter of
  // the blocks.
  __device__ void send(int step, int panel, int tile, int word, float2 h) const {
    const int slot = slot_of(step, panel);
    const uint32_t at = slots_ + uint32_t((slot * kWords + word) * sizeof(uint4));
    const uint32_t pair = Pair<T>::pack(h.x, h.y);
    const int first = threadIdx.x & 28, quarter = threadIdx.x & 3;
    const uint4 v{__shfl_sync(~0u, pair, first), __shfl_sync(~0u, pair, first + 1),
                  __shfl_sync(~0u, pair, first + 2), __shfl_sync(~0u, pair, first + 3)};
    if (word < 0) return;
#pragma unroll
    for (int i = 0; i < kLayerBlocks / 4; ++i) {
      // Starts at a different block in each block, so that they do not all send to the same one.
      const uint32_t to = uint32_t(kLayerBlocks / 4 * quarter + i + tile) % kLayerBlocks;
      store_async_16(cluster_address(at, to), v, cluster_address(barrier(slot), to));
    }
  }

 private:
  __device__ int slot_of(int step, int panel) const { return (step & 1) * panels_ + panel; }
  __device__ uint32_t barrier(int slot) const {
    return barriers_ + uint32_t(slot * sizeof(ByteBarrier));
  }

  int panels_;
  uint32_t slots_, barriers_;  // shared-memory addresses
  uint32_t bytes_;             // bytes that arrive per state
};

// partial[sample][row] of one half of the inner extent = its weights, all in registers, . a panel's
// state in shared memory. Four warps have the first half with a quarter of the block's rows each,
// and four have the second half, with kChunks chunks of 32 places each.
template <typename T, int kChunks, int kTiles>
class ClusterProduct {
 public:
  using Slots = ClusterSlots<T, 2 * kChunks>;
  using Slot = LaneSlot<1>;
  static constexpr bool kByGroups = false;
  static constexpr int kProductRegisters = 216, kGateRegisters = 72;
  static constexpr int kPanel = kLayerPanelSamples, kParts = 2;
  static constexpr int kWarpRows = 16 * kTiles, kRows = 4 * kWarpRows;
  static constexpr int kPitch = kRows + 4;  // floats per sample: avoids bank conflicts of a store

  // vec8_of(row, vec8) returns the weights of a row at 8 places, a Vec8<T>.
  template <typename Vec8Of>
  __device__ void load_weights(const Vec8Of& vec8_of) {
#pragma unroll
    for (int i = 0; i < kChunks * kTiles * 2; ++i) {
      const int p = i / (2 * kTiles), m = i / 2 % kTiles, half = i % 2;
      const Vec8<T> vec8 = vec8_of(first_row() + 16 * m + 8 * half + lane() / 4,
                                   4 * (part() * kChunks + p) + lane() % 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        a_[p][e / 2][m][e % 2 * 2 + half] = reinterpret_cast<const uint32_t*>(vec8.v)[e];
      }
    }
  }

  // Runs all iterations, each as soon as its state has arrived and its buffer of sums has been
  // read.
  template <typename Place>
  __device__ void multiply_iterations(const Slots& slots, int iterations, const Place& place,
                                      float* partials) const {
    const PassShape& shape = place.shape;
    float* own = partials + part() * kPanel * kPitch + first_row();
    int step = 0, panel = 0;
    for (int count = 0; count < iterations; ++count) {
      const uint32_t from =
          slots.await(step, panel) + uint32_t((part() * kChunks * 32 + lane()) * sizeof(uint4));
      float d[2][kTiles][4] = {};
      multiply(from, d);
      const int buffer = buffer_of(count, shape);
      if (count >= shape.buffers) named_barrier(kSumsFree + buffer, kBlockThreads);
      put(d, own + buffer * kParts * kPanel * kPitch);
      arrive_barrier(kSumsFull + buffer, kBlockThreads);
      if (threadIdx.x == 0) slots.expect(step, panel);
      if (++panel < place.panels) continue;
      panel = 0;
      ++step;
    }
  }

 private:
  static __device__ int lane() { return threadIdx.x % 32; }
  static __device__ int part() { return threadIdx.x / 128; }
  static __device__ int first_row() { return threadIdx.x / 32 % 4 * kWarpRows; }

  // Consecutive products into one accumulator wait for each other, so the halves of a chunk have
  // accumulators of their own.
  __device__ void multiply(uint32_t from, float (&d)[2][kTiles][4]) const {
    uint4 b[kChunks];
#pragma unroll
    for (int p = 0; p < kChunks; ++p) b[p] = load_shared_128(from + p * 32 * sizeof(uint4));
#pragma unroll
    for (int p = 0; p < kChunks; ++p) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        const int half = i / kTiles, m = i % kTiles;
        mma_m16n8k16<T>(d[half][m], a_[p][half][m], half == 0 ? b[p].x : b[p].z,
                        half == 0 ? b[p].y : b[p].w);
      }
    }
  }

  static __device__ void put(const float (&d)[2][kTiles][4], float* partial) {
    float* at = partial + 2 * (lane() % 4) * kPitch + lane() / 4;
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      const int m = i / 4, e = i % 4;
      at[e % 2 * kPitch + 16 * m + e / 2 * 8] = d[0][m][e] + d[1][m][e];
    }
  }

  uint32_t a_[kChunks][2][kTiles][4];  // of both halves of a chunk
};

}  // namespace ridgeline::cuda::recurrent
