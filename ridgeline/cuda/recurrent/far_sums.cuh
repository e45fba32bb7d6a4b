#pragma once

#include "ridgeline/cuda/device/spin.cuh"
#include "ridgeline/cuda/recurrent/large_product.cuh"

namespace ridgeline::cuda::recurrent {

// Turns of which sums may be on their way: a block sends those of a turn when the others have read
// those of four turns before.
constexpr int kFarRing = 4;

// Sums that kCluster blocks, which are no cluster to the GPU, send each other through L2: each has
// kUnits (the last may have fewer) of the units whose partial sums all of them make. A sum goes
// with the number of its turn, from 1 on, in 8 bytes that are written and read at once; the memory
// begins as zeros.
template <typename Product, int kCluster, int kUnits, int kOwn>
class FarSums {
 public:
  __device__ FarSums(uint4* memory, int rank, int own_units)
      : memory_(memory), rank_(rank), own_units_(own_units) {}

  // By the threads that apply gates: the sums of all parts of a turn's product, two rows at a time.
  template <typename Place>
  __device__ void send(const Turn& turn, const float* partial, const Place& place) const {
    constexpr int kPairs = Product::kRows / 2;  // of an item
    const uint64_t tag = tag_of(turn.count);
#pragma unroll
    for (int i = 0; i < kPanelItems * kPairs / kGateThreads; ++i) {
      const int task = place.thread + i * kGateThreads, n = task / kPairs, pair = task % kPairs;
      const float2 sum = add_pairs<Product::kParts>(partial + n * Product::kPitch + 2 * pair,
                                                    kPanelItems * Product::kPitch);
      const int owner = 2 * pair / kUnits;
      uint4* to =
          sums_of(turn.count, owner, rank_) + n * (kUnits / 2) + pair - owner * (kUnits / 2);
      asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(to),
                   "l"(tag | __float_as_uint(sum.x)), "l"(tag | __float_as_uint(sum.y))
                   : "memory");
    }
  }

  // The sums of the thread's two units of its items over all blocks.
  template <typename Place>
  __device__ void gather(const Turn& turn, const Place& place, float2 (&sums)[kOwn]) const {
    uint64_t v[kOwn][kCluster][2] = {};
    const uint64_t tag = tag_of(turn.count);
    const uint4* at = sums_of(turn.count, rank_, 0) + place.unit_in_block / 2;
    // Threads without items wait too: nobody may be further ahead than the ring is long.
    const bool waits = place.unit_in_block < own_units_;
    if (waits) {
      spin_until([&] {
#pragma unroll
        for (int k = 0; k < kOwn * kCluster; ++k) {
          const int i = k / kCluster, from = k % kCluster;
          asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
                       : "=l"(v[i][from][0]), "=l"(v[i][from][1])
                       : "l"(at + (from * kPanelItems + place.in_panel(i)) * (kUnits / 2))
                       : "memory");
        }
        bool here = true;
#pragma unroll
        for (int k = 0; k < 2 * kOwn * kCluster; ++k) {
          here = here && (v[k / 2 / kCluster][k / 2 % kCluster][k % 2] ^ tag) >> 32 == 0;
        }
        return here;
      });
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      sums[i] = {};
#pragma unroll
      for (int from = 0; from < kCluster; ++from) {
        sums[i].x += __uint_as_float(uint32_t(v[i][from][0]));
        sums[i].y += __uint_as_float(uint32_t(v[i][from][1]));
      }
    }
  }

 private:
  static __device__ uint64_t tag_of(int turn) { return uint64_t(uint32_t(turn + 1)) << 32; }
  // [cluster, turn of the ring, owner, from, item, pair of units]
  __device__ uint4* sums_of(int turn, int owner, int from) const {
    const int place = (int(blockIdx.x) / kCluster * kFarRing + turn % kFarRing) * kCluster + owner;
    return memory_ + (place * kCluster + from) * (kPanelItems * kUnits / 2);
  }

  uint4* memory_;
  int rank_, own_units_;
};

}  // namespace ridgeline::cuda::recurrent
