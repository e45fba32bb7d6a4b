#pragma once

// The shared memory of a block of the cluster_replicated function, and how weights are loaded and
// stored.
//
// In shared memory, activations and gradients are [unit][sample], 64 bytes per unit, and weights
// are [output][input] in two panels of 64 inputs, 128 bytes per row; 16-byte chunks have wgmma's
// swizzle. One copy therefore serves as either operand, plain or transposed:
//   y(l) = W y(l-1), dz(l-1) = W^T dz(l): units x samples, sums over units;  dW = dz y^T
// The first layer's inputs and weights stay in registers: warp w has inputs 64w.., of which lane 4g
// + t has inputs 16t..16t+15, for samples g, g + 8, .. and for the block's own unit g.

#include <cstdint>

#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/device/grid_barrier.cuh"
#include "ridgeline/cuda/device/mma.cuh"
#include "ridgeline/cuda/device/shared_matrix.cuh"
#include "ridgeline/cuda/mlp_train/cluster_replicated.h"
#include "ridgeline/cuda/mlp_train/fragments.cuh"

namespace ridgeline::cuda::mlp {

struct ClusterReplicatedParams {
  MlpTrainArgs args;
  const float2* rates;    // [steps] {keep, step}: w = keep * w - step * (gradient summed)
  const uint8_t* labels;  // [steps][32]
  const uint4* x;         // [steps][slice][16][lane]
  int slices;
  float* masters;  // [block][kReplicatedMasters], if weights are kept in fp32
};

// Offsets in shared memory, in bytes.
template <int kHidden>
struct ClusterReplicatedMap {
  static constexpr int kWeightBytes = kReplicatedUnits * kReplicatedUnits * 2;
  static constexpr int kPanelBytes = kWeightBytes / 2;
  static constexpr int kValueBytes = kReplicatedUnits * kReplicatedSamples * 2;
  static constexpr int kTopPitch = kReplicatedUnits * 2 + 16;  // these pitches avoid bank conflicts
  static constexpr int kDlogitsPitch = 48, kOwnPitch = 80, kSumPitch = 36 * 4;
  static constexpr int kSumBytes = 8 * kSumPitch;
  static constexpr int kTopBytes = kReplicatedClasses * kTopPitch;

  static constexpr int kWeights = 0;                                      // layers 1..
  static constexpr int kFirst = kWeights + (kHidden - 1) * kWeightBytes;  // y(0), three buffers
  static constexpr int kY = kFirst + 3 * kValueBytes;                     // layers 1.., two buffers
  static constexpr int kDz = kY + 2 * (kHidden - 1) * kValueBytes;        // layers 1..
  static constexpr int kSums = kDz + (kHidden - 1) * kValueBytes;         // [warp][own][sample]
  // This is float [4][sample][24], and reuses the sums after they have been read.
  static constexpr int kLogits = kSums;
  static constexpr int kTop = kSums + kReplicatedWarps * kSumBytes;  // [class][unit], two buffers
  static constexpr int kDlogits = kTop + 2 * kTopBytes;              // [sample][class]
  static constexpr int kOwnDz =
      kDlogits + kReplicatedSamples * kDlogitsPitch;                   // [own unit][sample]
  static constexpr int kReport = kOwnDz + 8 * kOwnPitch;               // float [sample][17]
  static constexpr int kBias = kReport + kReplicatedSamples * 17 * 4;  // float, layers 1..
  static constexpr int kTopBias = kBias + (kHidden - 1) * kReplicatedUnits * 4;
  static constexpr int kOwnBias = kTopBias + kReplicatedClasses * 4;
  static constexpr int kBarriers = kOwnBias + 8 * 4;
  static constexpr int kRates = kBarriers + 4 * 8;               // float2 [step]
  static constexpr int kLabels = kRates + kReplicatedSteps * 8;  // byte [step][sample]
  static constexpr int kBytes = kLabels + kReplicatedSteps * kReplicatedSamples;
  static_assert(kBytes <= 227 * 1024);
};

// Shapes are padded to the largest: units past a layer's last have weights, biases and values of 0.
template <typename T, int kHidden, bool kMasters>
class ClusterReplicatedState {
 protected:
  __device__ ClusterReplicatedState(const ClusterReplicatedParams& params, char* shared)
      : p_(params),
        args_(params.args),
        generic_(shared),
        shared_(shared_address(shared)),
        block_(blockIdx.x),
        warp_(__shfl_sync(~0u, int(threadIdx.x >> 5), 0)),  // makes it known to be uniform
        lane_(threadIdx.x & 31),
        g_(lane_ >> 2),
        t_(lane_ & 3) {}

  using Map = ClusterReplicatedMap<kHidden>;
  using Tile = WeightTile<T, kMasters>;
  static constexpr int kChainWarps = kReplicatedChainWarps;
  static constexpr int kLogitPitch = 24;
  static constexpr int kChainThreads = 32 * kChainWarps, kThreads = 32 * kReplicatedWarps;
  // Named barriers of the block: 0 is for all threads.
  static constexpr int kChainBarrier = 1, kDlogitsBarrier = 2;
  static constexpr int kWeightsBarrier = 2;  // plus l, from 1 on: W(l) has been updated

  __device__ void all_barrier() { __syncthreads(); }
  __device__ void chain_barrier() { named_barrier(kChainBarrier, kChainThreads); }
  __device__ ByteBarrier& first_barrier(int i) {
    return reinterpret_cast<ByteBarrier*>(generic_ + Map::kBarriers)[i];
  }
  __device__ uint32_t weights(int l) const {
    return shared_ + Map::kWeights + (l - 1) * Map::kWeightBytes;
  }
  __device__ uint32_t first(int ring) const {
    return shared_ + Map::kFirst + ring * Map::kValueBytes;
  }
  // y(l) of step t, l >= 1; dz(l), l >= 1.
  __device__ uint32_t y(int l, int t) const {
    return shared_ + Map::kY + (2 * (l - 1) + (t & 1)) * Map::kValueBytes;
  }
  __device__ uint32_t dz(int l) const { return shared_ + Map::kDz + (l - 1) * Map::kValueBytes; }
  __device__ uint32_t top(int t) const { return shared_ + Map::kTop + (t & 1) * Map::kTopBytes; }
  __device__ float* bias(int l) const {
    return reinterpret_cast<float*>(generic_ + Map::kBias) + (l - 1) * kReplicatedUnits;
  }
  __device__ float* top_bias() const { return reinterpret_cast<float*>(generic_ + Map::kTopBias); }
  __device__ float2* rates() const { return reinterpret_cast<float2*>(generic_ + Map::kRates); }
  __device__ uint8_t* labels(int t) const {
    return reinterpret_cast<uint8_t*>(generic_ + Map::kLabels) + t * kReplicatedSamples;
  }
  __device__ float* own_bias() const { return reinterpret_cast<float*>(generic_ + Map::kOwnBias); }

  // The offset of a chunk of 8 samples of a unit, and of a chunk of 8 inputs of an output. The
  // chunks of a row differ in the bits that the swizzle flips: the address of chunk c is that of
  // chunk 0 with the bits of c flipped.
  static __device__ uint32_t value_at(int unit, int chunk) {
    return unit * 64 + ((chunk ^ ((unit >> 1) & 3)) << 4);
  }
  static __device__ uint32_t weight_at(int out, int chunk) {
    return (chunk >> 3) * Map::kPanelBytes + out * 128 + (((chunk & 7) ^ (out & 7)) << 4);
  }
  static __device__ float stored(float v) { return kMasters ? v : float(T(v)); }
  // The first of this warp's 16 units in a product of the chain, or of the followers.
  __device__ int warp_units() const { return (warp_ & 7) * 16; }
  // The address of this lane's row of the 8 x 8 matrices of those units: matrices 0 and 1 are the
  // two halves of the units with samples 0..7; 2 and 3 have samples 8..15. For samples from 16 on:
  // ^ 32.
  __device__ uint32_t matrix_at() const {
    return value_at(warp_units() + (lane_ & 15), lane_ >> 4);
  }

  static __device__ float sum_of(const uint4& v) {
    const float2 a = Pair<T>::unpack(v.x), b = Pair<T>::unpack(v.y), c = Pair<T>::unpack(v.z),
                 d = Pair<T>::unpack(v.w);
    return ((a.x + a.y) + (b.x + b.y)) + ((c.x + c.y) + (d.x + d.y));
  }

  // This lane's slots of the slice: 0..7 are plain, samples x inputs; 8..15 are transposed, for the
  // gradient.
  __device__ const uint4* slots(int t) const {
    return p_.x + (int64_t{t} * p_.slices + warp_) * 512 + lane_;
  }
  __device__ void load_inputs(int t) {
    if (warp_ >= p_.slices) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) x_[i] = __ldg(slots(t) + 32 * i);
  }
  __device__ void load_transposed(int t) {
    if (warp_ >= p_.slices) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) xt_[i] = __ldg(slots(t) + 32 * (8 + i));
  }
  // The block's own master weights of the layers above the first, row by row: other blocks are not
  // always in the same step.
  __device__ float* master(int l) const {
    return p_.masters + int64_t{block_} * kReplicatedMasters +
           (l - 1) * kReplicatedUnits * kReplicatedUnits;
  }
  __device__ T* half(int at) const { return reinterpret_cast<T*>(generic_ + at); }
  // A weight as passed to the launch, 0 past the last; and the reverse.
  __device__ float weight_of(int l, int out, int in) const {
    const auto& sizes = args_.shape.sizes;
    if (out >= sizes[l + 1] || in >= sizes[l]) return 0.0f;
    const int64_t at = int64_t{out} * sizes[l] + in;
    return kMasters ? args_.master_w[l][at] : float(static_cast<const T*>(args_.w[l])[at]);
  }
  __device__ void give_weight(int l, int out, int in, float v) const {
    const auto& sizes = args_.shape.sizes;
    if (out >= sizes[l + 1] || in >= sizes[l]) return;
    const int64_t at = int64_t{out} * sizes[l] + in;
    static_cast<T*>(args_.w[l])[at] = T(v);
    if (kMasters) args_.master_w[l][at] = v;
  }
  __device__ float bias_of(int l, int i) const {
    if (i >= args_.shape.sizes[l + 1]) return 0.0f;
    return kMasters ? args_.master_bias[l][i] : float(static_cast<const T*>(args_.bias[l])[i]);
  }
  __device__ void give_bias(int l, int i, float v) const {
    if (i >= args_.shape.sizes[l + 1]) return;
    static_cast<T*>(args_.bias[l])[i] = T(v);
    if (kMasters) args_.master_bias[l][i] = v;
  }

  __device__ void load_weights() {
    const int own = 8 * block_ + g_, first_in = kReplicatedSlice * warp_ + 16 * t_;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = weight_of(0, own, first_in + 4 * j + i);
      if constexpr (kMasters) {
        w_[j] = {v[0], v[1], v[2], v[3]};
      } else {
        w_[j] = {Pair<T>::pack(v[0], v[1]), Pair<T>::pack(v[2], v[3])};
      }
    }
    for (int l = 1; l <= kHidden; ++l) {
      const int rows = l < kHidden ? kReplicatedUnits : kReplicatedClasses;
      for (int i = threadIdx.x; i < rows * kReplicatedUnits; i += kThreads) {
        const int out = i / kReplicatedUnits, in = i % kReplicatedUnits;
        const float v = weight_of(l, out, in);
        if (kMasters) master(l)[i] = v;
        T* to = l < kHidden ? half(weights(l) - shared_ + weight_at(out, in >> 3)) + (in & 7)
                            : half(Map::kTop + out * Map::kTopPitch) + in;
        *to = T(v);
      }
    }
    for (int i = threadIdx.x; i < kReplicatedUnits; i += kThreads) {
      for (int l = 1; l < kHidden; ++l) bias(l)[i] = bias_of(l, i);
      if (i < kReplicatedClasses) top_bias()[i] = bias_of(kHidden, i);
      if (i < 8) own_bias()[i] = bias_of(0, 8 * block_ + i);
    }
  }

  // Each block stores its own rows of all layers, and the first block stores the last layer.
  __device__ void store_weights() {
    const int own = 8 * block_ + g_, first_in = kReplicatedSlice * warp_ + 16 * t_;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float v[4];
      if constexpr (kMasters) {
        v[0] = w_[j].x, v[1] = w_[j].y, v[2] = w_[j].z, v[3] = w_[j].w;
      } else {
        const float2 low = Pair<T>::unpack(w_[j].x), high = Pair<T>::unpack(w_[j].y);
        v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) give_weight(0, own, first_in + 4 * j + i, v[i]);
    }
    for (int l = 1; l <= kHidden; ++l) {
      if (l == kHidden && block_ != 0) break;
      const int rows = l < kHidden ? 8 : kReplicatedClasses, row0 = l < kHidden ? 8 * block_ : 0;
      for (int i = threadIdx.x; i < rows * kReplicatedUnits; i += kThreads) {
        const int out = row0 + i / kReplicatedUnits, in = i % kReplicatedUnits;
        const T* from = l < kHidden
                            ? half(weights(l) - shared_ + weight_at(out, in >> 3)) + (in & 7)
                            : half(top(args_.steps) - shared_ + out * Map::kTopPitch) + in;
        give_weight(l, out, in, kMasters ? master(l)[out * kReplicatedUnits + in] : float(*from));
      }
    }
    for (int i = threadIdx.x; i < 8; i += kThreads) {
      const int out = 8 * block_ + i;
      give_bias(0, out, own_bias()[i]);
      for (int l = 1; l < kHidden; ++l) give_bias(l, out, bias(l)[out]);
    }
    if (block_ == 0 && threadIdx.x < kReplicatedClasses) {
      give_bias(kHidden, threadIdx.x, top_bias()[threadIdx.x]);
    }
  }

  const ClusterReplicatedParams& p_;
  const MlpTrainArgs& args_;
  char* generic_;
  uint32_t shared_;
  int block_, warp_, lane_, g_, t_;
  int ring_ = 0;                   // the buffer of y(0): step mod 3
  uint32_t phase_ = 0;             // the phase of its barrier
  typename Tile::Slot w_[4] = {};  // the block's own rows of W(0): inputs 16t + 4j.. of unit g
  uint4 x_[8] = {}, xt_[8] = {};   // [4 inputs j][16 samples m]
};

}  // namespace ridgeline::cuda::mlp
