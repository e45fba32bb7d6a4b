#pragma once

#include "ridgeline/cuda/device/mma.cuh"
#include "ridgeline/cuda/device/shared_matrix.cuh"
#include "ridgeline/cuda/recurrent/cell.h"
#include "ridgeline/cuda/recurrent/vec8.cuh"

// Products of a batch-parallel pass by `mma`, with the weights of all units in a block's registers
// and two samples per block. A warp has 16 units: row r of its tiles is unit r % 8 * 2 + r / 8, so
// that a lane's sums are of two neighbouring units. The tile's eight columns are the two samples,
// four times each, so that lane 4 g + t finds the sums of unit 2 g + t / 2 and sample t % 2 in its
// register t.
namespace ridgeline::cuda::recurrent {

// The unit and sample whose gates a thread applies.
template <typename T, int kChunks>
struct MmaPlace {
  static constexpr int kThreads = 64 * kChunks, kPlaces = 32 * kChunks, kSamples = 2;
  static constexpr int kUnits = kPlaces;
  static constexpr bool kMayCluster = false;
  using State = T;

  int warp = int(threadIdx.x) / 32, g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;

  __device__ bool has() const { return true; }
  __device__ int unit() const { return 16 * warp + 2 * g + t / 2; }
  __device__ int sample() const { return t % 2; }
};

// The weights of 16 rows over chunks of 32 places as two `a` operands per chunk. A lane's operands
// are eight neighbouring places of rows 2 g and 2 g + 1.
template <typename T, int kChunks>
struct MmaWeights {
  uint32_t a[kChunks > 0 ? kChunks : 1][2][4];

  // vec8_of(row, vec8) returns eight weights of one of the warp's units.
  template <typename Vec8Of>
  __device__ void load(int g, int t, const Vec8Of& vec8_of) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const Vec8<T> rows[2] = {vec8_of(2 * g, 4 * chunk + t), vec8_of(2 * g + 1, 4 * chunk + t)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          a[chunk][i / 2][i % 2 * 2 + row] = reinterpret_cast<const uint32_t*>(&rows[row])[i];
        }
      }
    }
  }
  // Loads from columns: pair_of(place) returns that place of rows 2 g and 2 g + 1.
  template <typename PairOf>
  __device__ void load_columns(int t, const PairOf& pair_of) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int place = 32 * chunk + 8 * t + 2 * i;
        const uint32_t first = pair_of(place), second = pair_of(place + 1);
        a[chunk][i / 2][i % 2 * 2] = __byte_perm(first, second, 0x5410);
        a[chunk][i / 2][i % 2 * 2 + 1] = __byte_perm(first, second, 0x7632);
      }
    }
  }
  // Adds the products with places of a sample's row, which begin at this lane's, to d.
  template <int kSums>
  __device__ void multiply(int chunk, const uint4& b, float (&d)[kSums][4]) const {
    mma_m16n8k16<T>(d[0], a[chunk][0], b.x, b.y);
    mma_m16n8k16<T>(d[kSums - 1], a[chunk][1], b.z, b.w);
  }
};

// Values `at` and `at + 1` of a row of `count`, with zeros past its end; in one access if `even`.
template <typename T>
__device__ inline uint32_t pair_of_row(const T* row, int at, int count, bool even) {
  if (at >= count) return 0;
  if (even) return *reinterpret_cast<const uint32_t*>(row + at);
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(row + at);
  return bits[0] | (at + 1 < count ? uint32_t(bits[1]) << 16 : 0);
}

// Register t of a lane's sums, for lane 4 g + t.
__device__ inline float own_sum(const float (&d)[4], int t) {
  const float low = t & 1 ? d[1] : d[0], high = t & 1 ? d[3] : d[2];
  return t & 2 ? high : low;
}

template <typename T, Cell kCell, int kChunks>
class MmaBackwardProduct;

// Returns that of the sum of two tiles.
__device__ inline float own_sum(const float (&a)[4], const float (&b)[4], int t) {
  const float sums[4] = {a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]};
  return own_sum(sums, t);
}

// sums of gates[units] = w_hh . h, and of w_ih . x with kInputChunks > 0.
template <typename T, Cell kCell, int kChunks, int kInputChunks>
class MmaForwardProduct : public MmaPlace<T, kChunks> {
 public:
  using Place = MmaPlace<T, kChunks>;
  using Backward = MmaBackwardProduct<T, kCell, kChunks>;  // of the same layout
  static constexpr int kGates = cell_gates(kCell), kInputPlaces = 32 * kInputChunks;
  // A sample's row of a state; rows are in different halves of the banks.
  static constexpr int kPitch = Place::kPlaces + 32;
  static constexpr int kPartialFloats = 0;

  __device__ void load_weights(const T* w_hh, int hidden, int /*first_unit*/) {
    load(w_hh, hidden, hidden, weights_);
  }
  __device__ void load_input_weights(const T* w_ih, int in, int hidden) {
    load(w_ih, in, hidden, input_weights_);
  }

  // Loads x of the next timestep, [samples, kInputPlaces] in shared memory.
  __device__ void fetch_inputs(const T* x) {
    const uint32_t row = shared_address(x + (this->g & 1) * kInputPlaces + 8 * this->t);
#pragma unroll
    for (int chunk = 0; chunk < kInputChunks; ++chunk)
      x_[chunk] = load_shared_128(row + 64 * chunk);
  }
  // Begins the products with x, if it takes x, and h; end() returns the sums. A GRU's last gate
  // takes those with x, `from_x`, apart.
  __device__ void begin(const T* state, float* /*partials*/) {
    uint4 b[kChunks];
    const uint32_t row = shared_address(state + (this->g & 1) * kPitch + 8 * this->t);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) b[chunk] = load_shared_128(row + 64 * chunk);
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int i = 0; i < 4; ++i) d_[gate][0][i] = d_[gate][1][i] = last_[0][i] = 0.0f;
    }
#pragma unroll
    for (int chunk = 0; chunk < kInputChunks; ++chunk) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        if (apart(gate)) {
          input_weights_[gate].multiply(chunk, x_[chunk], last_);
        } else {
          input_weights_[gate].multiply(chunk, x_[chunk], d_[gate]);
        }
      }
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) weights_[gate].multiply(chunk, b[chunk], d_[gate]);
    }
  }
  __device__ void end(float* /*partials*/, float (&sums)[kGates], float (&from_x)[kGates]) const {
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      sums[gate] = own_sum(d_[gate][0], d_[gate][1], this->t);
      if (kInputChunks > 0) from_x[gate] = apart(gate) ? own_sum(last_[0], this->t) : 0.0f;
    }
  }

 private:
  template <typename Weights>
  __device__ void load(const T* w, int width, int hidden, Weights& weights) const {
    with_evenness(width, w, [&]<bool kEven>() {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        weights[gate].load(this->g, this->t, [&](int row, int vec8) {
          const int unit = 16 * this->warp + row;
          const T* from = unit < hidden ? w + (int64_t(gate) * hidden + unit) * width : nullptr;
          return vec8_of_row<kEven>(from, vec8, width);
        });
      }
    });
  }

  static constexpr bool apart(int gate) { return kCell == Cell::gru && gate == kGates - 1; }

  MmaWeights<T, kChunks> weights_[kGates];
  MmaWeights<T, kInputChunks> input_weights_[kInputChunks > 0 ? kGates : 1];
  uint4 x_[kInputChunks > 0 ? kInputChunks : 1];
  float d_[kGates][2][4], last_[1][4];
};

// sums of dh[units] = w_hh^T . gate gradients; place `gate * kPlaces + unit` of a sample's row is
// that gate's gradient.
template <typename T, Cell kCell, int kChunks>
class MmaBackwardProduct : public MmaPlace<T, kChunks> {
 public:
  using Place = MmaPlace<T, kChunks>;
  static constexpr int kGates = cell_gates(kCell), kPitch = kGates * Place::kPlaces + 32;
  static constexpr int kPartialFloats = 0;
  static constexpr bool kSendsSums = false;

  __device__ int place(int gate, int unit) const { return gate * Place::kPlaces + unit; }
  __device__ void load_weights(const T* w_hh, int hidden, int /*first_unit*/) {
    const bool even = hidden % 2 == 0 && reinterpret_cast<uintptr_t>(w_hh) % 4 == 0;
    const int unit = 16 * this->warp + 2 * this->g;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      weights_[gate].load_columns(this->t, [&](int place) {
        return pair_of_row(w_hh + (int64_t(gate) * hidden + place) * hidden, unit,
                           place < hidden ? hidden : 0, even);
      });
    }
  }
  __device__ void begin(const T* gradients, float* /*partials*/) {
#pragma unroll
    for (int i = 0; i < 4; ++i) d_[0][0][i] = d_[0][1][i] = d_[1][0][i] = d_[1][1][i] = 0.0f;
    const uint32_t row = shared_address(gradients + (this->g & 1) * kPitch + 8 * this->t);
#pragma unroll
    for (int i = 0; i < kGates * kChunks; ++i) {
      const uint4 b = load_shared_128(row + 64 * i);
      weights_[i / kChunks].multiply(i % kChunks, b, d_[i % 2]);
    }
  }
  __device__ float end(float* /*partials*/, int /*step*/) const {
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] = (d_[0][0][i] + d_[0][1][i]) + (d_[1][0][i] + d_[1][1][i]);
    }
    return own_sum(sums, this->t);
  }

 private:
  MmaWeights<T, kChunks> weights_[kGates];
  float d_[2][2][4];
};

}  // namespace ridgeline::cuda::recurrent
