#pragma once

#include "ridgeline/cuda/device/spin.cuh"
#include "ridgeline/cuda/recurrent/large_product.cuh"

namespace ridgeline::cuda::recurrent {

// The number of iterations whose sums may be in flight: a block sends the sums of an iteration when
// the others have read those of four iterations before.
constexpr int kL2SumsRing = 4;

// Partial sums that kCluster blocks, which are not launched as a cluster, send each other through
// L2. All blocks compute partial sums of all units; each block owns kUnits of the units (the last
// may own fewer). A sum is stored together with the number of its iteration, from 1 on, in 8 bytes
// that are written and read at once. The memory must be zero before the launch.
template <typename Product, int kCluster, int kUnits, int kOwn>
class L2PartialSums {
 public:
  __device__ L2PartialSums(uint4* memory, int rank, int own_units)
      : memory_(memory), rank_(rank), own_units_(own_units) {}

  // Called by the threads that apply gates: sends the sums of all parts of an iteration's product,
  // two rows at a time.
  template <typename Place>
  __device__ void send(const Iteration& iteration, const float* partial, const Place& place) const {
    constexpr int kPairs = Product::kRows / 2;  // per sample
    const uint64_t tag = tag_of(iteration.count);
#pragma unroll
    for (int i = 0; i < kPanelSamples * kPairs / kGateThreads; ++i) {
      const int task = place.thread + i * kGateThreads, n = task / kPairs, pair = task % kPairs;
      const float2 sum = add_pairs<Product::kParts>(partial + n * Product::kPitch + 2 * pair,
                                                    kPanelSamples * Product::kPitch);
      const int owner = 2 * pair / kUnits;
      uint4* to =
          sums_of(iteration.count, owner, rank_) + n * (kUnits / 2) + pair - owner * (kUnits / 2);
      asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(to),
                   "l"(tag | __float_as_uint(sum.x)), "l"(tag | __float_as_uint(sum.y))
                   : "memory");
    }
  }

  // Gathers the sums of this thread's two units, for each of its samples, over all blocks.
  template <typename Place>
  __device__ void gather(const Iteration& iteration, const Place& place,
                         float2 (&sums)[kOwn]) const {
    uint64_t v[kOwn][kCluster][2] = {};
    const uint64_t tag = tag_of(iteration.count);
    const uint4* at = sums_of(iteration.count, rank_, 0) + place.unit_in_block / 2;
    // Threads without samples wait too: no thread may be further ahead than the ring is long.
    const bool waits = place.unit_in_block < own_units_;
    if (waits) {
      spin_until([&] {
#pragma unroll
        for (int k = 0; k < kOwn * kCluster; ++k) {
          const int i = k / kCluster, from = k % kCluster;
          asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
                       : "=l"(v[i][from][0]), "=l"(v[i][from][1])
                       : "l"(at + (from * kPanelSamples + place.in_panel(i)) * (kUnits / 2))
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
  static __device__ uint64_t tag_of(int iteration) {
    return uint64_t(uint32_t(iteration + 1)) << 32;
  }
  // [cluster, iteration of the ring, owner, from, sample, pair of units]
  __device__ uint4* sums_of(int iteration, int owner, int from) const {
    const int place =
        (int(blockIdx.x) / kCluster * kL2SumsRing + iteration % kL2SumsRing) * kCluster + owner;
    return memory_ + (place * kCluster + from) * (kPanelSamples * kUnits / 2);
  }

  uint4* memory_;
  int rank_, own_units_;
};

}  // namespace ridgeline::cuda::recurrent
