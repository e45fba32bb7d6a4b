#pragma once

// The gradients of a member's weights, which are applied as soon as they are computed.

#include "ridgeline/cuda/population/first_layer.cuh"

namespace ridgeline::cuda::population {

// The optimizer of a step: updates a weight whose gradient is `factor` times `sum`, and its
// moments.
template <PopulationRule kRule>
struct Rule {
  static constexpr bool kHasM = kRule != PopulationRule::sgd;
  static constexpr bool kHasV = kRule == PopulationRule::adam;
  float rate, decay, keep, momentum, gain1, gain2, epsilon, correction1, correction2;
  bool nesterov, decoupled;

  __device__ Rule(const MemberArgs& p, int tick, int step)
      : rate(float(p.lr[tick + step])),
        decay(p.decay),
        keep(1 - rate * decay),
        momentum(p.momentum),
        gain1(float(1 - p.beta1)),
        gain2(float(1 - p.beta2)),
        epsilon(p.epsilon),
        nesterov(p.nesterov),
        decoupled(p.decoupled) {
    if constexpr (kRule == PopulationRule::adam) {
      const auto t = float(*p.step + tick + step + 1);
      correction1 = -1 / expm1f(t * log1pf(-gain1));
      correction2 = -1 / expm1f(t * log1pf(-gain2));
    }
  }
  __device__ float operator()(float w, float sum, float factor, float& m, float& v) const {
    if constexpr (kRule == PopulationRule::sgd) return keep * w - rate * factor * sum;
    float gradient = factor * sum;
    if constexpr (kRule == PopulationRule::momentum) {
      gradient += decay * w;
      m = momentum * m + gradient;
      return w - rate * (nesterov ? gradient + momentum * m : m);
    }
    if (decoupled) {
      w *= keep;
    } else {
      gradient += decay * w;
    }
    m += gain1 * (gradient - m);
    v += gain2 * (gradient * gradient - v);
    return w - rate * correction1 * m / (sqrtf(v * correction2) + epsilon);
  }
};

// The moments of a layer's weights or biases; null if there are none.
struct Moments {
  float *m, *v;
  __device__ Moments at(int64_t index) const { return {m + index, v + index}; }
};

// One weight, bias or pair of weights with its moments, loaded from memory and stored back.
template <PopulationRule kRule, typename F>
struct WithMoments {
  F m{}, v{};
  __device__ void load(const Moments& from) {
    if constexpr (Rule<kRule>::kHasM) m = *reinterpret_cast<const F*>(from.m);
    if constexpr (Rule<kRule>::kHasV) v = *reinterpret_cast<const F*>(from.v);
  }
  __device__ void store(const Moments& to) const {
    if constexpr (Rule<kRule>::kHasM) *reinterpret_cast<F*>(to.m) = m;
    if constexpr (Rule<kRule>::kHasV) *reinterpret_cast<F*>(to.v) = v;
  }
};

// Stores 64 units of both rows, as pairs, to rows of the staging memory: the operand whose k is the
// samples.
template <int kPanelOf64>
__device__ inline void stage_units(char* staged, const Lane& l, const uint32_t (*values)[4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = l.sample + 8 * (i % 2), sixteen = 2 * k + i / 2;
      *reinterpret_cast<uint32_t*>(staged + row * 128 + ((sixteen ^ (row & 7)) << 4) + 4 * l.t) =
          values[4 * kPanelOf64 + k][i];
    }
  }
  fence_async_proxy();
}

// Updates w2 for the 64 staged units, by one warpgroup.
template <typename T, typename M, bool kMasters, PopulationRule kRule>
__device__ inline void update_w2(char* shared, char* panel, float* masters, const Lane& l,
                                 int classes, float over_batch, const Rule<kRule>& rule,
                                 const Moments& moments, int hidden) {
  const uint32_t base = shared_address(shared);
  const uint64_t a = wgmma_descriptor(base + M::kStaged, 16, 1024, 128);
  const uint64_t b = wgmma_descriptor(base + M::kD, 16, 256, 32);
  float sums[8];
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    wgmma<T, true, true>(sums, a + k * (16 * 128 >> 4), b + k * (16 * 32 >> 4), k > 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_keep(sums);
  // All loads come before the first store, here and below, so that they do not wait for each other.
  const auto class_of = [&](int i) { return 8 * (i / 4) + 2 * l.t + i % 2; };
  const auto unit_of = [&](int i) { return 16 * (l.warp % 4) + l.g + 8 * (i / 2 % 2); };
  const auto place = [&](int i) {
    const int c = class_of(i), unit = unit_of(i);
    return reinterpret_cast<T*>(panel + c * 128 + ((unit / 8 ^ (c & 7)) << 4) + unit % 8 * 2);
  };
  const auto at = [&](int i) { return moments.at(int64_t(class_of(i)) * hidden + unit_of(i)); };
  float w[8];
  WithMoments<kRule, float> more[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (class_of(i) >= classes) continue;
    w[i] = kMasters ? masters[class_of(i) * 64 + unit_of(i)] : float(*place(i));
    more[i].load(at(i));
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (class_of(i) >= classes) continue;
    w[i] = rule(w[i], sums[i], over_batch, more[i].m, more[i].v);
    more[i].store(at(i));
    if constexpr (kMasters) masters[class_of(i) * 64 + unit_of(i)] = w[i];
    *place(i) = T(w[i]);
  }
}

// Loads the operand of 16 units (of this warp, among the staged 64) and all samples.
__device__ inline void load_dz(uint32_t staged, const Lane& l, uint32_t (&a)[kRows / 16][4]) {
  const int matrix = l.lane / 8, sixteen = 2 * (l.warp % 4) + matrix % 2;
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    const int row = 16 * k + 8 * (matrix / 2) + l.lane % 8;
    load_matrices_transposed(a[k], staged + row * 128 + ((sixteen ^ (row & 7)) << 4));
  }
}

// Sums over the samples for units l.g and l.g + 8 of this warp; all lanes receive them.
template <typename T>
__device__ inline float2 sums_over_samples(const uint32_t (&a)[kRows / 16][4]) {
  float sums[2] = {0, 0};
#pragma unroll
  for (int side = 0; side < 2; ++side) {
#pragma unroll
    for (int k = 0; k < kRows / 16; ++k) {
      const float2 low = unpack<T>(a[k][side]), high = unpack<T>(a[k][2 + side]);
      sums[side] += (low.x + low.y) + (high.x + high.y);
    }
    sums[side] += __shfl_xor_sync(~0u, sums[side], 1);
    sums[side] += __shfl_xor_sync(~0u, sums[side], 2);
  }
  return {sums[0], sums[1]};
}

// A chunk of X as the other operand: [samples][64 positions], or two halves of 32 for the two
// warpgroups if a block has 64 units.
template <typename T, int kUnits>
__device__ inline void stage_chunk(char* staged, const Lane& l, const uint4 (&bytes)[2]) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int row = l.sample + 8 * side;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint32_t four = word(bytes[side], s);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int sixteen = 2 * s + i;
        const int at = kUnits == 128 ? row * 128 + ((sixteen ^ (row & 7)) << 4)
                                     : sixteen / 4 * (kStagedBytes / 2) + row * 64 +
                                           ((sixteen % 4 ^ (row >> 1 & 3)) << 4);
        *reinterpret_cast<uint32_t*>(staged + at + 4 * l.t) =
            i == 0 ? to_numbers<T, 0>(four) : to_numbers<T, 1>(four);
      }
    }
  }
  fence_async_proxy();
}

template <typename T>
__device__ inline void stage_panel(char* staged, const Lane& l, const uint32_t (&bytes)[2]) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int row = l.sample + 8 * side;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<uint32_t*>(staged + row * 32 + ((i ^ (row >> 2 & 1)) << 4) + 4 * l.t) =
          i == 0 ? to_numbers<T, 0>(bytes[side]) : to_numbers<T, 1>(bytes[side]);
    }
  }
  fence_async_proxy();
}

// dw1 and the update of w1: dz (an operand) times X, a chunk at a time. A warpgroup has 64 units
// and all inputs or, if a block has only 64 units, half of the inputs of a chunk.
template <typename T, int kUnits, bool kMasters, PopulationRule kRule>
class FirstUpdates {
 public:
  using M = Map<T, kUnits, kMasters>;
  static constexpr int kColumns = kUnits == 128 ? 64 : 32;  // of a chunk, per warpgroup
  using Sums = float[kColumns / 2];

  __device__ FirstUpdates(char* shared, const Lane& l, int inputs, float factor,
                          const Rule<kRule>& rule, const Moments& moments)
      : shared_(shared), l_(l), inputs_(inputs), factor_(factor), rule_(rule), moments_(moments) {
    row_ = (kUnits == 128 ? 64 * l.group : 0) + 16 * (l.warp % 4) + l.g;
  }

  // `bytes` holds the first chunk. `last` is called when little work is left.
  template <typename F>
  __device__ void run(const SampleBytes& x, uint4 (&bytes)[2], const uint32_t (&dz)[kRows / 16][4],
                      F last) {
    const int chunks = inputs_ / kChunk, panels = inputs_ % kChunk / kPanel;
    if (chunks > 0) {
      stage_chunk<T, kUnits>(staged(), l_, bytes);
      __syncthreads();
      if (chunks > 1) x.chunk(1, l_, bytes);
    }
    Sums sums[2];
    const auto round = [&]<int kBuffer>(int c) {
      begin(dz, sums[kBuffer]);
      if (c > 0) apply(c - 1, sums[1 - kBuffer]);
      wgmma_wait<0>();
      wgmma_keep(sums[kBuffer]);
      __syncthreads();  // both warpgroups are done with the staged chunk
      if (c + 1 == chunks) return;
      stage_chunk<T, kUnits>(staged(), l_, bytes);
      __syncthreads();
      if (c + 2 < chunks) x.chunk(c + 2, l_, bytes);
    };
#pragma unroll 1
    for (int c = 0; c < chunks; c += 2) {
      round.template operator()<0>(c);
      if (c + 1 < chunks) {
        round.template operator()<1>(c + 1);
      } else {
        apply(c, sums[0]);
      }
    }
    last();
    if (chunks > 0 && chunks % 2 == 0) apply(chunks - 1, sums[1]);
#pragma unroll 1
    for (int i = 0; i < panels; ++i) {
      uint32_t left[2];
      x.panel(chunks * kChunk + i * kPanel, l_, left);
      stage_panel<T>(staged(), l_, left);
      __syncthreads();
      if (kUnits == 128 || l_.group == 0) update_panel(chunks, i, dz);
      __syncthreads();
    }
  }

 private:
  __device__ char* staged() const { return shared_ + M::kStaged; }

  __device__ void begin(const uint32_t (&dz)[kRows / 16][4], Sums& sums) const {
    const uint32_t at = shared_address(staged());
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kRows / 16; ++k) {
      const uint64_t b =
          kUnits == 128
              ? wgmma_descriptor(at + k * 16 * 128, 16, 1024, 128)
              : wgmma_descriptor(at + l_.group * (kStagedBytes / 2) + k * 16 * 64, 16, 512, 64);
      wgmma_register_operand<T, true>(sums, dz[k], b, k > 0);
    }
    wgmma_commit();
  }

  __device__ void apply(int c, const Sums& sums) const {
    char* chunk = shared_ + M::kW1 + c * M::kChunkBytes;
    const int first = (kUnits == 128 ? 0 : 32 * l_.group) + 2 * l_.t;  // position
    const auto position = [&](int i) { return first + 8 * (i / 2); };
    update<kColumns / 4>(
        sums, [&](int i) { return chunk + M::in_chunk(row_ + 8 * (i % 2), position(i)); },
        [&](int i) {
          return int64_t(row_ + 8 * (i % 2)) * inputs_ + c * kChunk + input_at(position(i));
        });
  }

  __device__ void update_panel(int chunks, int i0, const uint32_t (&dz)[kRows / 16][4]) const {
    float sums[8];
    const uint64_t b = wgmma_descriptor(shared_address(staged()), 16, 256, 32);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kRows / 16; ++k) {
      wgmma_register_operand<T, true>(sums, dz[k], b + k * (16 * 32 >> 4), k > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_keep(sums);
    char* panel = shared_ + M::kW1 + chunks * M::kChunkBytes + i0 * M::kPanelBytes;
    const auto position = [&](int i) { return 8 * (i / 2) + 2 * l_.t; };
    update<4>(
        sums, [&](int i) { return panel + M::in_panel(row_ + 8 * (i % 2), position(i)); },
        [&](int i) {
          return int64_t(row_ + 8 * (i % 2)) * inputs_ + chunks * kChunk + i0 * kPanel +
                 panel_input_at(position(i));
        });
  }

  // Updates kPairs pairs of weights: place(i) is the offset of pair i, index(i) its index in the
  // layer.
  template <int kPairs, typename Place, typename Index>
  __device__ void update(const float* sums, Place place, Index index) const {
    constexpr int kAtOnce = kPairs < 8 ? kPairs : 8;
    using Pair = std::conditional_t<kMasters, float2, uint32_t>;
#pragma unroll
    for (int first = 0; first < kPairs; first += kAtOnce) {
      Pair pairs[kAtOnce];
      WithMoments<kRule, float2> more[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        pairs[i] = *reinterpret_cast<const Pair*>(place(first + i));
        if constexpr (Rule<kRule>::kHasM) more[i].load(moments_.at(index(first + i)));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        float2 w;
        if constexpr (kMasters) {
          w = pairs[i];
        } else {
          w = unpack<T>(pairs[i]);
        }
        const float* sum = sums + 2 * (first + i);
        w = {rule_(w.x, sum[0], factor_, more[i].m.x, more[i].v.x),
             rule_(w.y, sum[1], factor_, more[i].m.y, more[i].v.y)};
        if constexpr (kMasters) {
          pairs[i] = w;
        } else {
          pairs[i] = pack<T>(w.x, w.y);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        *reinterpret_cast<Pair*>(place(first + i)) = pairs[i];
        if constexpr (Rule<kRule>::kHasM) more[i].store(moments_.at(index(first + i)));
      }
    }
  }

  char* shared_;
  const Lane l_;
  int inputs_, row_;
  float factor_;
  const Rule<kRule>& rule_;
  Moments moments_;
};

}  // namespace ridgeline::cuda::population
