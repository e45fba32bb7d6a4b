#pragma once

#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/recurrent/pass.cuh"

namespace ridgeline::cuda::recurrent {

// Partial sums that the blocks of a cluster send each other through distributed shared memory. All
// blocks compute partial sums of all units; each block owns kUnits of the units (the last may own
// fewer). Up to `ring` iterations may be in flight.
template <typename Product, int kCluster, int kUnits, int kOwn>
class ClusterSums {
 public:
  static constexpr int kFloats = kCluster * kPanelSamples * kUnits;  // per iteration

  // `memory` holds the ring, then its barriers.
  __device__ ClusterSums(float* memory, int ring, int rank, int own_units)
      : memory_(memory),
        barriers_(reinterpret_cast<ByteBarrier*>(memory + ring * kFloats)),
        ring_(ring),
        rank_(rank),
        bytes_(uint32_t(kCluster * kPanelSamples * own_units * sizeof(float))) {}

  // Called first, by all threads of the cluster.
  __device__ void start() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < ring_; ++i) {
        barriers_[i].init();
        barriers_[i].expect(bytes_);
      }
    }
    cluster_sync();
  }

  // Called by the threads that apply gates: sends four units of a sample at a time to their owner.
  template <typename Place>
  __device__ void send(const Iteration& iteration, const float* partial, const Place& place) const {
    constexpr int kQuads = Product::kRows / 4;  // per sample
    const int slot = iteration.count % ring_;
    for (int task = place.thread; task < kPanelSamples * kQuads; task += kGateThreads) {
      const int n = task / kQuads, quad = task % kQuads;
      const float* at = partial + n * Product::kPitch + 4 * quad;
      float4 sum = {};
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        if (warp >= place.shape.sum_parts) break;
        const float4 v =
            *reinterpret_cast<const float4*>(at + warp * kPanelSamples * Product::kPitch);
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
      }
      const uint32_t to = uint32_t(4 * quad / kUnits);
      const float* there =
          memory_ + slot * kFloats + (rank_ * kPanelSamples + n) * kUnits + 4 * quad % kUnits;
      store_async_16(cluster_address(shared_address(there), to),
                     uint4{__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z),
                           __float_as_uint(sum.w)},
                     cluster_address(shared_address(&barriers_[slot]), to));
    }
  }

  // The sums over all blocks for this thread's two units, for each of its samples.
  template <typename Place>
  __device__ void gather(const Iteration& iteration, const Place& place,
                         float2 (&sums)[kOwn]) const {
    const int slot = iteration.count % ring_;
    barriers_[slot].wait(iteration.count / ring_ & 1);
    if (place.thread == 0) barriers_[slot].expect(bytes_);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      sums[i] = {};
      if (!place.has(iteration.panel, i)) continue;
      const float* at = memory_ + slot * kFloats + place.in_panel(i) * kUnits + place.unit_in_block;
#pragma unroll
      for (int from = 0; from < kCluster; ++from) {
        const float2 v = *reinterpret_cast<const float2*>(at + from * kPanelSamples * kUnits);
        sums[i].x += v.x;
        sums[i].y += v.y;
      }
    }
  }

 private:
  float* memory_;
  ByteBarrier* barriers_;
  int ring_, rank_;
  uint32_t bytes_;  // sent to this block per iteration
};

}  // namespace ridgeline::cuda::recurrent
