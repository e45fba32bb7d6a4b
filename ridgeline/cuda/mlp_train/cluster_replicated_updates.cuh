#pragma once

// The two warpgroups that follow the chain: updates of the layers above the first, and the report.

#include "ridgeline/cuda/device/wgmma.cuh"
#include "ridgeline/cuda/mlp_train/cluster_replicated_state.cuh"

namespace ridgeline::cuda::mlp {

template <typename T, int kHidden, bool kDecays, bool kMasters>
class ClusterReplicatedUpdates : public ClusterReplicatedState<T, kHidden, kMasters> {
 protected:
  using Base = ClusterReplicatedState<T, kHidden, kMasters>;
  using Map = typename Base::Map;
  using Base::args_;
  using Base::Base;
  using Base::bias;
  using Base::block_;
  using Base::dz;
  using Base::first;
  using Base::g_;
  using Base::generic_;
  using Base::kChainThreads;
  using Base::kDlogitsBarrier;
  using Base::kThreads;
  using Base::kWeightsBarrier;
  using Base::labels;
  using Base::lane_;
  using Base::load_inputs;
  using Base::load_transposed;
  using Base::master;
  using Base::rates;
  using Base::ring_;
  using Base::shared_;
  using Base::stored;
  using Base::sum_of;
  using Base::t_;
  using Base::top;
  using Base::top_bias;
  using Base::value_at;
  using Base::warp_;
  using Base::warp_units;
  using Base::weights;
  using Base::y;
  __device__ void follow(int t) {
#pragma unroll 1
    for (int l = 1; l < kHidden; ++l) {
      if (t > 0) update_layer(l, t - 1);
      fence_async_proxy();
      named_barrier_arrive(kWeightsBarrier + l, kThreads);
    }
    load_transposed(t);
    load_inputs(min(t + 1, args_.steps - 1));
    named_barrier(kDlogitsBarrier, kThreads);
    update_top(t);
    if (block_ == kReplicatedBlocks - 1 && warp_ == kReplicatedWarps - 1) report(t);
  }

  // Starts sum[64 outputs x 32 inputs] = dz y^T over the samples.
  static __device__ void multiply_gradient(uint32_t dz, uint32_t y, float (&sum)[16]) {
    const uint64_t a = wgmma_descriptor(dz, 16, 512, 64), b = wgmma_descriptor(y, 16, 512, 64);
    wgmma_fence();
    wgmma<T, false, false>(sum, a, b, false);
    wgmma<T, false, false>(sum, a + (32 >> 4), b + (32 >> 4), true);
    wgmma_commit();
  }

  // Updates W(l), l >= 1, and its bias for step t, during the next step.
  __device__ void update_layer(int l, int t) {
    const int group = warp_ >> 2 & 1, out = warp_units() + (lane_ & 15);
    const float2 rate = rates()[t];
    const uint32_t below = l == 1 ? first(ring_ == 0 ? 2 : ring_ - 1) : y(l - 1, t);
    // This lane's row of the 8 x 8 matrices of 16 outputs and inputs 0..15; other inputs are
    // addressed by the chunk's bits, see weight_at.
    const uint32_t row = weights(l) + out * 128 + ((lane_ >> 4 ^ (out & 7)) << 4);
    fence_async_proxy();  // other blocks stored y(0)
    // Takes 32 inputs at a time; the product of the next 32 runs while these are updated.
    float sum[2][16];
    multiply_gradient(dz(l) + group * 64 * 64, below, sum[0]);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const auto at = [&](int j) {
        return (row ^ ((4 * q + 2 * j) & 7) << 4) + (q >> 1) * Map::kPanelBytes;
      };
      uint32_t w[2][4];
      float2 masters[2][4];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!kMasters) load_matrices(w[j], at(j));
#pragma unroll
        for (int i = 0; i < 4 && kMasters; ++i) masters[j][i] = *master_at(l, 32 * q + 16 * j, i);
      }
      if (q < 3) {
        multiply_gradient(dz(l) + group * 64 * 64, below + (q + 1) * 32 * 64, sum[(q + 1) & 1]);
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
      }
      wgmma_keep(sum[q & 1]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 old = kMasters ? masters[j][i] : Pair<T>::unpack(w[j][i]);
          const float* g = sum[q & 1] + 8 * j + 2 * i;
          const float2 next = {fmaf(-rate.y, g[0], kept(rate, old.x)),
                               fmaf(-rate.y, g[1], kept(rate, old.y))};
          w[j][i] = Pair<T>::pack(next.x, next.y);
          if (kMasters) *master_at(l, 32 * q + 16 * j, i) = next;
        }
        store_matrices(at(j), w[j]);
      }
    }
    const int unit = (int(threadIdx.x) - kChainThreads) / 2, c = 2 * (threadIdx.x & 1);
    float total = sum_of(load_shared_128(dz(l) + value_at(unit, c))) +
                  sum_of(load_shared_128(dz(l) + value_at(unit, c + 1)));
    total += __shfl_xor_sync(~0u, total, 1);
    if (c == 0) bias(l)[unit] = stored(fmaf(-rate.y, total, bias(l)[unit]));
  }
  // The master weights of this lane's pair i, for the 16 outputs of this warp and inputs `in`..
  __device__ float2* master_at(int l, int in, int i) const {
    const int out = warp_units() + g_ + 8 * (i & 1);
    return reinterpret_cast<float2*>(master(l) + out * kReplicatedUnits + in + 8 * (i >> 1) +
                                     2 * t_);
  }
  // Returns what remains of a weight after decay; without decay, all of it.
  static __device__ float kept(float2 rate, float w) { return kDecays ? rate.x * w : w; }

  // The last layer: a warp has 16 units of its inputs.
  __device__ void update_top(int t) {
    const float2 rate = rates()[t];
    const int row = lane_ & 7, odd = lane_ >> 3 & 1, high = lane_ >> 4;
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      load_matrices_transposed(a[m], shared_ + Map::kDlogits +
                                         (16 * m + 8 * high + row) * Map::kDlogitsPitch + odd * 16);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int unit = warp_units() + 8 * n;
      uint32_t b[4];
      load_matrices(b, y(kHidden - 1, t) + value_at(unit + row, lane_ >> 3));
      float sum[4] = {};
      mma_m16n8k16<T>(sum, a[0], b[0], b[1]);
      mma_m16n8k16<T>(sum, a[1], b[2], b[3]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t at = (g_ + 8 * h) * Map::kTopPitch + (unit + 2 * t_) * 2;
        float2* masters = reinterpret_cast<float2*>(
            master(kHidden) + (g_ + 8 * h) * kReplicatedUnits + unit + 2 * t_);
        const float2 old = kMasters ? *masters : Pair<T>::unpack(load_shared_32(top(t) + at));
        const float2 next = {fmaf(-rate.y, sum[2 * h], kept(rate, old.x)),
                             fmaf(-rate.y, sum[2 * h + 1], kept(rate, old.y))};
        store_shared_32(top(t + 1) + at, Pair<T>::pack(next.x, next.y));
        if (kMasters) *masters = next;
      }
    }
    if (warp_ == kReplicatedWarps - 2) {
      float sum = 0.0f;
#pragma unroll
      for (int s = 0; s < 16; ++s) {
        const char* d = generic_ + Map::kDlogits + (s + 16 * high) * Map::kDlogitsPitch;
        sum += float(reinterpret_cast<const T*>(d)[lane_ & 15]);
      }
      sum += __shfl_xor_sync(~0u, sum, 16);
      if (high == 0) top_bias()[lane_] = stored(fmaf(-rate.y, sum, top_bias()[lane_]));
    }
  }

  // One warp of one block sums the batch's loss and correct predictions, one sample per lane.
  __device__ void report(int t) {
    const float* z = reinterpret_cast<const float*>(generic_ + Map::kReport) + lane_ * 17;
    const int classes = args_.shape.sizes[kHidden + 1];
    const int label = labels(t)[lane_];
    float largest = -INFINITY, sum = 0.0f, at_label = 0.0f;
    int where = 0;
    for (int c = 0; c < classes; ++c) {
      if (z[c] > largest) largest = z[c], where = c;
      if (c == label) at_label = z[c];
    }
    for (int c = 0; c < classes; ++c) sum += __expf(z[c] - largest);
    const bool live = lane_ < args_.shape.batch;
    float loss = live ? __logf(sum) + largest - at_label : 0.0f;
    int correct = live && where == label;
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
      loss += __shfl_xor_sync(~0u, loss, d);
      correct += __shfl_xor_sync(~0u, correct, d);
    }
    if (lane_ == 0) args_.loss[t] = loss / args_.shape.batch, args_.correct[t] = correct;
  }
};

}  // namespace ridgeline::cuda::mlp
