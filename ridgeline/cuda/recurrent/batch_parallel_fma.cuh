#pragma once

#include <cstdint>

#include "ridgeline/cuda/recurrent/cell.h"

// Products of a batch-parallel pass in fp32 by multiply-adds, with the weights of a block's units
// in its registers. Warps and lanes divide the places of a sum; the parts are added up by the
// threads that apply the gates, one for each unit and sample.
namespace ridgeline::cuda::recurrent {

// kUnits per block (32, 64 or 128), kPadded hidden units in all.
template <int kBlockUnits, int kPadded, int kBlockSamples>
struct FmaPlace {
  static constexpr int kThreads = 512, kPlaces = kPadded, kUnits = kBlockUnits;
  static constexpr int kSamples = kBlockSamples;
  static constexpr bool kMayCluster = true;
  using State = float;

  int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;

  __device__ bool has() const { return threadIdx.x < kUnits * kSamples; }
  __device__ int unit() const { return int(threadIdx.x) % kUnits; }
  __device__ int sample() const { return int(threadIdx.x) / kUnits; }
};

__device__ inline void add_product(float& to, const float4& a, const float4& b) {
  to = fmaf(a.x, b.x, to);
  to = fmaf(a.y, b.y, to);
  to = fmaf(a.z, b.z, to);
  to = fmaf(a.w, b.w, to);
}

// The sums of kSums values over the four lanes of a quad: lane i returns that of value i, or, if
// there is only one, all of them return it.
template <int kSums>
__device__ inline float quad_sum(const float (&v)[kSums], int lane) {
  constexpr uint32_t kAll = 0xffffffffu;
  const bool odd = lane & 1, upper = lane & 2;
  const auto at = [&](int i) { return i < kSums ? v[i] : 0.0f; };
  if constexpr (kSums == 1) {
    const float two = v[0] + __shfl_xor_sync(kAll, v[0], 1);
    return two + __shfl_xor_sync(kAll, two, 2);
  } else {
    const float low = (odd ? at(1) : at(0)) + __shfl_xor_sync(kAll, odd ? at(0) : at(1), 1);
    const float high = (odd ? at(3) : at(2)) + __shfl_xor_sync(kAll, odd ? at(2) : at(3), 1);
    return (upper ? high : low) + __shfl_xor_sync(kAll, upper ? low : high, 2);
  }
}

template <Cell kCell, int kUnits, int kPadded, int kSamples>
class FmaBackwardProduct;

// sums of gates[units] = w_hh . h. A warp has eight units, a quad of lanes for each.
template <Cell kCell, int kUnits, int kPadded, int kSamples>
class FmaForwardProduct : public FmaPlace<kUnits, kPadded, kSamples> {
 public:
  using Backward = FmaBackwardProduct<kCell, kUnits, kPadded, kSamples>;  // of the same layout
  static constexpr int kGates = cell_gates(kCell), kPitch = kPadded, kInputPlaces = 0;
  static constexpr int kWarpParts = 128 / kUnits;  // warps that divide the places of a sum
  static constexpr int kLanes = 4 * kWarpParts, kQuads = kPadded / (4 * kLanes);
  // The pitch of a gate's sums: the four lanes of a quad store into different banks.
  static constexpr int kGatePitch = kUnits + 8;
  static constexpr int kPartFloats = kSamples * kGates * kGatePitch;
  static constexpr int kPartialFloats = kWarpParts * kPartFloats;

  __device__ void load_weights(const float* w_hh, int hidden, int first_unit) {
    const int unit = first_unit + warp_unit() + this->lane / 4;
    const bool even = hidden % 4 == 0 && reinterpret_cast<uintptr_t>(w_hh) % 16 == 0;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      const float* row = w_hh + (int64_t(gate) * hidden + unit) * hidden;
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        const int at = place(i), there = unit < hidden ? hidden - at : 0;
        float4 v = {};
        if (even) {
          if (there > 0) v = *reinterpret_cast<const float4*>(row + at);
        } else {
          if (there > 0) v.x = row[at];
          if (there > 1) v.y = row[at + 1];
          if (there > 2) v.z = row[at + 2];
          if (there > 3) v.w = row[at + 3];
        }
        weights_[gate][i] = v;
      }
    }
  }

  __device__ void begin(const float* state, float* partials) const {
#pragma unroll
    for (int s = 0; s < kSamples; ++s) {
      float of[kGates] = {};
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        const float4 h = *reinterpret_cast<const float4*>(state + s * kPitch + place(i));
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) add_product(of[gate], weights_[gate][i], h);
      }
      const float sum = quad_sum(of, this->lane);
      const int gate = this->lane % 4;
      if (gate < kGates) {
        partials[this->warp * 8 / kUnits * kPartFloats + (s * kGates + gate) * kGatePitch +
                 warp_unit() + this->lane / 4] = sum;
      }
    }
  }
  // Called by all threads of the block.
  __device__ void end(float* partials, float (&sums)[kGates], float (&)[kGates]) const {
    __syncthreads();
    if (!this->has()) return;
    const float* at = partials + this->sample() * kGates * kGatePitch + this->unit();
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      sums[gate] = at[gate * kGatePitch];
#pragma unroll
      for (int part = 1; part < kWarpParts; ++part) {
        sums[gate] += at[part * kPartFloats + gate * kGatePitch];
      }
    }
  }

 private:
  // The first of the warp's units in the block.
  __device__ int warp_unit() const { return this->warp * 8 % kUnits; }
  // This lane's i-th group of four places.
  __device__ int place(int i) const {
    return 4 * (i * kLanes + this->warp * 8 / kUnits * 4 + this->lane % 4);
  }

  float4 weights_[kGates][kQuads];
};

// sums of dh[units] = w_hh^T . gate gradients. A warp has 32 units per kLaneUnits.
template <Cell kCell, int kUnits, int kPadded, int kSamples>
class FmaBackwardProduct : public FmaPlace<kUnits, kPadded, kSamples> {
 public:
  static constexpr int kGates = cell_gates(kCell), kPitch = kGates * kPadded;
  static constexpr int kLaneUnits = kUnits >= 64 ? 2 : 1, kWarpUnits = 32 * kLaneUnits;
  static constexpr int kParts = 16 * kWarpUnits / kUnits, kQuads = kPitch / (4 * kParts);
  static constexpr int kPartFloats = kSamples * kUnits;
  static constexpr int kPartialFloats = kParts * kPartFloats;
  static constexpr bool kSendsSums = false;

  __device__ int place(int gate, int unit) const { return gate * kPadded + unit; }
  __device__ void load_weights(const float* w_hh, int hidden, int first_unit) {
    const int unit = first_unit + warp_unit() + this->lane * kLaneUnits;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int at = quad_place(i), gate = at / kPadded, from = at % kPadded;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float* row = w_hh + (int64_t(gate) * hidden + from + e) * hidden + unit;
#pragma unroll
        for (int k = 0; k < kLaneUnits; ++k) {
          weights_[i][k][e] = from + e < hidden && unit + k < hidden ? row[k] : 0.0f;
        }
      }
    }
  }

  __device__ void begin(const float* gradients, float* partials) const {
#pragma unroll
    for (int s = 0; s < kSamples; ++s) {
      float of[kLaneUnits] = {};
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        const float4 v = *reinterpret_cast<const float4*>(gradients + s * kPitch + quad_place(i));
#pragma unroll
        for (int k = 0; k < kLaneUnits; ++k) {
          const float(&w)[4] = weights_[i][k];
          add_product(of[k], {w[0], w[1], w[2], w[3]}, v);
        }
      }
      float* to = partials + (part() * kSamples + s) * kUnits + warp_unit();
#pragma unroll
      for (int k = 0; k < kLaneUnits; ++k) to[this->lane * kLaneUnits + k] = of[k];
    }
  }
  // Called by all threads of the block.
  __device__ float end(float* partials, int /*step*/) const {
    __syncthreads();
    float sum = 0.0f;
    if (!this->has()) return sum;
    const float* at = partials + this->sample() * kUnits + this->unit();
#pragma unroll
    for (int part = 0; part < kParts; ++part) sum += at[part * kPartFloats];
    return sum;
  }

 private:
  __device__ int warp_unit() const { return this->warp * kWarpUnits % kUnits; }
  __device__ int part() const { return this->warp * kWarpUnits / kUnits; }
  __device__ int quad_place(int i) const { return 4 * (i * kParts + part()); }

  float weights_[kQuads][kLaneUnits][4];
};

}  // namespace ridgeline::cuda::recurrent
