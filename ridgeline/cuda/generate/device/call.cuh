#pragma once

// Inference of a perceptron for a few samples by one cluster of blocks. The columns of each layer
// are split over the blocks, which hold the weights in registers. Each block writes its outputs
// into the shared memory of all blocks, with a cluster barrier between layers.

#include "ridgeline/cuda/generate/device/loss.cuh"

namespace ridgeline::generated {

__device__ inline u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Writes that threads of the cluster made before arriving are visible to all of them after the
// wait.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Stores four neighbouring values into the shared memory of block `rank` of the cluster, at the
// same offset as `at` in the calling block.
template <typename T>
__device__ inline void store_remote(const T* at, u32 rank, const T (&v)[4]) {
  u32 to;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(to)
      : "r"(u32(__cvta_generic_to_shared(at))), "r"(rank));
  const u64* raw = reinterpret_cast<const u64*>(&v);
#pragma unroll
  for (int i = 0; i < int(sizeof(T)) / 2; ++i)
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(to + 8 * i), "l"(raw[i]) : "memory");
}

// Stores the outputs of this block's columns, which start at `base`, into all kBlocks blocks; those
// of the last layer (kLast) are stored as values, into the first block only.
template <typename Math, typename L, typename Bias, int kRows, int kColumns, int kBlocks,
          bool kLast>
struct CallOutputs {
  using Value = typename Math::Value;
  using Number = typename Math::Number;
  using Kept = typename std_conditional<kLast, Value, Number>::type;
  static constexpr int kUnits = 4, kAhead = 4, kRowEnd = 16, kColumnEnd = kColumns;
  struct State {
    Value bias[4];
  };
  const Bias* bias;  // or null
  Kept* y;           // rows of L::kLd; zero past the layer's width
  int base;

  __device__ State prepare(int, int column) const {
    State state{};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (bias != nullptr && base + column + c < L::kWidth)
        state.bias[c] = widen(bias[base + column + c]);
    }
    return state;
  }
  __device__ void take(int row, int column, const Block<Value>& sum, const State& state) const {
    column += base;
    if (column >= L::kWidth) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (row + r >= kRows) continue;
      alignas(32) Kept n[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Value slope, v = bend<L::kActivation>(sum.v[r][c] + state.bias[c], slope,
                                              Value(__longlong_as_double(L::kParameter)));
        if (L::kWidth % 4 != 0 && column + c >= L::kWidth) v = Value(0);
        if constexpr (kLast) {
          n[c] = v;
        } else {
          n[c] = Math::operand(v);
        }
      }
      const Kept* at = y + (row + r) * L::kLd + column;
      if constexpr (kLast) {
        store_remote(at, 0, n);
      } else {
#pragma unroll
        for (u32 rank = 0; rank < kBlocks; ++rank) store_remote(at, rank, n);
      }
    }
  }
};

// A block converts samples row0 .. row0 + kRows - 1 of a call to rows of operands in shared memory.
template <typename Math, int kRows, int kFeatures, int kLd, typename Sample>
__device__ inline void take_samples(const Sample* set, const i32* order, i64 at, int rows,
                                    double scale, double shift, typename Math::Number* x) {
  constexpr int kRun = kFeatures % 4 == 0 ? 4 : 1, kEach = kFeatures / kRun;
  struct alignas(kRun * sizeof(Sample)) Run {
    Sample v[kRun];
  };
#pragma unroll 4
  for (int i = thread_of(); i < kRows * kEach; i += kThreads) {
    const int row = i / kEach, column = kRun * (i % kEach);
    if (row >= rows) continue;
    const Run run = *reinterpret_cast<const Run*>(set + i64(order[at + row]) * kFeatures + column);
#pragma unroll
    for (int c = 0; c < kRun; ++c) {
      // Rounds to the type of the layers, as the gather's output would be.
      x[row * kLd + column + c] =
          Math::operand(sample_value<typename Math::Value>(run.v[c], scale, shift));
    }
  }
}

enum class CallEnd { softmax, none };

// Writes the last layer's outputs (after their activation) or their softmax, and the first index of
// the maximum, with one warp per row.
template <typename Math, int kClasses, int kLd, CallEnd kEnd, typename Out>
__device__ inline void finish_call(const typename Math::Value* outputs, int rows, Out* y,
                                   i32* largest) {
  using Value = typename Math::Value;
  constexpr int kEach = (kClasses + 31) / 32;
  const int lane = lane_of();
  for (int r = warp_of(); r < rows; r += kWarps) {
    Value v[kEach], most = -Value(__int_as_float(0x7f800000)), sum = Value(0);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int c = lane + 32 * i;
      v[i] = c < kClasses ? outputs[r * kLd + c] : -Value(__int_as_float(0x7f800000));
      most = v[i] > most ? v[i] : most;
    }
    if constexpr (kEnd == CallEnd::softmax) {
#pragma unroll
      for (int off = 16; off > 0; off /= 2) {
        const Value other = __shfl_xor_sync(~0u, most, off);
        most = other > most ? other : most;
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        v[i] = lane + 32 * i < kClasses ? exp_of(v[i] - most) : Value(0);
        sum += v[i];
      }
      sum = warp_sum(sum);
#pragma unroll
      for (int i = 0; i < kEach; ++i) v[i] /= sum;
    }
    Value best = -Value(__int_as_float(0x7f800000));
    int place = kClasses;
#pragma unroll
    for (int i = kEach; i-- > 0;) {
      const int c = lane + 32 * i;
      if (c >= kClasses) continue;
      const Out n = Narrow<Out>::from(v[i]);
      y[i64(r) * kClasses + c] = n;
      if (widen(n) >= best) best = widen(n), place = c;
    }
    if (largest == nullptr) continue;
#pragma unroll
    for (int off = 16; off > 0; off /= 2) {
      const Value other = __shfl_xor_sync(~0u, best, off);
      const int at = __shfl_xor_sync(~0u, place, off);
      if (other > best || (other == best && at < place)) best = other, place = at;
    }
    if (lane == 0) largest[r] = place < kClasses ? place : 0;  // 0 if all are NaN
  }
}

}  // namespace ridgeline::generated
