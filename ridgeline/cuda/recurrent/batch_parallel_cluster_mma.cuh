#pragma once

#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/recurrent/batch_parallel_mma.cuh"

// As batch_parallel_mma.cuh, for layers whose weights fill the registers of a cluster of four
// blocks, with 64 units and four samples each. Forward, the blocks send each other the states;
// backward, the sums over their own gate gradients.
namespace ridgeline::cuda::recurrent {

// The tile's eight columns are the four samples twice, and a warp has eight units.
template <typename T>
struct ClusterMmaPlace {
  static constexpr int kBlocks = 4, kUnits = 64, kPlaces = kBlocks * kUnits, kThreads = 256;
  static constexpr int kSamples = 4, kInputPlaces = 0;
  static constexpr bool kMayCluster = true;
  using State = T;

  int warp = int(threadIdx.x) / 32, g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;

  __device__ bool has() const { return true; }
  __device__ int unit() const { return 8 * warp + g; }
  __device__ int sample() const { return 2 * (t & 1) + (t >> 1); }

  // Writes the values of two neighbouring units, which two threads of a warp have, to all blocks of
  // the cluster: each thread to half of them. Called by whole warps.
  __device__ void send(T* to, float v, bool wanted) const {
    constexpr uint32_t kAll = 0xffffffffu;
    const bool odd = g & 1;
    const float own = wanted ? v : 0.0f, other = __shfl_xor_sync(kAll, own, 4);
    const bool first_wanted = __shfl_sync(kAll, int(wanted), int(threadIdx.x) & 27) != 0;
    if (!first_wanted) return;
    const uint32_t word = odd ? Pair<T>::pack(other, own) : Pair<T>::pack(own, other);
    const uint32_t address = shared_address(to - (odd ? 1 : 0));
#pragma unroll
    for (int i = 0; i < kBlocks / 2; ++i) {
      asm volatile(
          "st.shared::cluster.u32 [%0], %1;" ::"r"(cluster_address(address, uint32_t(2 * odd + i))),
          "r"(word)
          : "memory");
    }
  }
};

template <int kTiles>
__device__ inline void clear(float (&d)[kTiles][2][4]) {
#pragma unroll
  for (int i = 0; i < 8 * kTiles; ++i) d[i / 8][i / 4 % 2][i % 4] = 0.0f;
}

template <typename T, Cell kCell>
class ClusterMmaBackwardProduct;

// sums of gates[units] = w_hh . h. A tile has two gates of a warp's units.
template <typename T, Cell kCell>
class ClusterMmaForwardProduct : public ClusterMmaPlace<T> {
 public:
  using Place = ClusterMmaPlace<T>;
  using Backward = ClusterMmaBackwardProduct<T, kCell>;
  static constexpr int kGates = cell_gates(kCell), kTiles = (kGates + 1) / 2;
  static constexpr int kChunks = Place::kPlaces / 32, kPitch = Place::kPlaces + 32;
  static constexpr int kPartialFloats = 0;

  __device__ void load_weights(const T* w_hh, int hidden, int first_unit) {
    with_evenness(hidden, w_hh, [&]<bool kEven>() {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        weights_[tile].load(this->g, this->t, [&](int row, int vec8) {
          const int gate = 2 * tile + row % 2, unit = first_unit + 8 * this->warp + row / 2;
          const bool has = gate < kGates && unit < hidden;
          const T* from = has ? w_hh + (int64_t(gate) * hidden + unit) * hidden : nullptr;
          return vec8_of_row<kEven>(from, vec8, hidden);
        });
      }
    });
  }
  __device__ void begin(const T* state, float* /*partials*/) {
    clear(d_);
    const uint32_t row = shared_address(state + (this->g & 3) * kPitch + 8 * this->t);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const uint4 b = load_shared_128(row + 64 * chunk);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) weights_[tile].multiply(chunk, b, d_[tile]);
    }
  }
  __device__ void end(float* /*partials*/, float (&sums)[kGates], float (&)[kGates]) const {
    const bool second = this->t >= 2;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      const float(&of)[2][4] = d_[gate / 2];
      const int at = gate % 2 * 2;
      sums[gate] = second ? of[0][at + 1] + of[1][at + 1] : of[0][at] + of[1][at];
    }
  }

 private:
  MmaWeights<T, kChunks> weights_[kTiles];
  float d_[kTiles][2][4];
};

// sums of dh[units] = w_hh^T . gate gradients. A block multiplies the gradients of its own units by
// their weights to all units, and sends each block the sums of its units. Place `gate * kUnits +
// unit` of a sample's row is that gate's gradient.
template <typename T, Cell kCell>
class ClusterMmaBackwardProduct : public ClusterMmaPlace<T> {
 public:
  using Place = ClusterMmaPlace<T>;
  static constexpr bool kSendsSums = true;
  static constexpr int kGates = cell_gates(kCell), kPitch = kGates * Place::kUnits + 32;
  static constexpr int kChunks = kGates * Place::kUnits / 32, kTiles = 2;
  // The sums of a block's units from each block, in two buffers, which alternate.
  static constexpr int kBlockSums = Place::kUnits * Place::kSamples;
  static constexpr int kPartialFloats = 2 * Place::kBlocks * kBlockSums;

  __device__ int place(int gate, int /*unit*/) const { return gate * Place::kUnits + this->unit(); }
  __device__ void load_weights(const T* w_hh, int hidden, int first_unit) {
    const bool even = hidden % 2 == 0 && reinterpret_cast<uintptr_t>(w_hh) % 4 == 0;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int unit = 32 * this->warp + 16 * tile + 2 * this->g;
      weights_[tile].load_columns(this->t, [&](int place) {
        const int gate = place / Place::kUnits, from = first_unit + place % Place::kUnits;
        return pair_of_row(w_hh + (int64_t(gate) * hidden + from) * hidden, unit,
                           from < hidden ? hidden : 0, even);
      });
    }
  }
  __device__ void begin(const T* gradients, float* /*partials*/) {
    clear(d_);
    const uint32_t row = shared_address(gradients + (this->g & 3) * kPitch + 8 * this->t);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const uint4 b = load_shared_128(row + 64 * chunk);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) weights_[tile].multiply(chunk, b, d_[tile]);
    }
  }
  // Called by all threads of the cluster.
  __device__ float end(float* partials, int step) const {
    float* buffer = partials + (step & 1) * Place::kBlocks * kBlockSums;
    if (this->t < 2) {  // the other lanes have the same columns
      const int in_block = this->warp % 2 * 32 + 2 * this->g;
      const float* to =
          buffer + int(cluster_rank()) * kBlockSums + in_block * Place::kSamples + 2 * this->t;
      const uint32_t address = cluster_address(shared_address(to), uint32_t(this->warp / 2));
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          cluster_store(address + (16 * tile + k) * Place::kSamples * 4,
                        {d_[tile][0][2 * k] + d_[tile][1][2 * k],
                         d_[tile][0][2 * k + 1] + d_[tile][1][2 * k + 1]});
        }
      }
    }
    cluster_sync();
    const float* at = buffer + this->unit() * Place::kSamples + this->sample();
    return (at[0] + at[kBlockSums]) + (at[2 * kBlockSums] + at[3 * kBlockSums]);
  }

 private:
  MmaWeights<T, kChunks> weights_[kTiles];
  float d_[kTiles][2][4];
};

}  // namespace ridgeline::cuda::recurrent
