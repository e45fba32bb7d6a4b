#pragma once

// clang-format off
// One step of a member by a cluster of blocks, each with its units of the hidden layer. The bytes
// of samples are multiplied as integers, and `scale` is applied to the sums.
//
//   z = scale X w1^T + b1     X from L2 as bytes, in registers; w1 in shared memory
//   h = relu(z)               stays in registers, as an operand of the next product
//   logits = h w2^T + b2      the blocks' parts are exchanged in shared memory of the cluster
//   d = softmax - one-hot     not divided by the batch (sums are), so that halves keep precision
//   dz = (d w2) [h > 0]
//   w2 -= rate d^T h,  w1 -= rate scale dz^T X     h and dz through shared memory, X staged there
// clang-format on

#include "ridgeline/cuda/population/head.cuh"
#include "ridgeline/cuda/population/updates.cuh"

namespace ridgeline::cuda::population {

// A power of two by which master weights are multiplied before they become fp16, so that weights
// down to a millionth keep 11 bits.
constexpr float kMasterFactor = 64;

struct LaunchArgs {
  const MemberArgs* members;  // null: `one` is used
  MemberArgs one;
  int inputs, hidden, classes, batch, blocks;
};

template <typename T, int kUnits, bool kMasters, PopulationRule kRule>
class Trainer {
  using M = Map<T, kUnits, kMasters>;
  using Weight = std::conditional_t<kMasters, float, T>;
  static constexpr bool kScaled = kMasters && std::is_same_v<T, __half>;

 public:
  // `shared` already holds the member's arguments.
  __device__ Trainer(const LaunchArgs& launch, char* shared)
      : s_(launch),
        shared_(shared),
        rest_(rest(launch, shared)),
        p_(rest_.member),
        w2_masters_(reinterpret_cast<float*>(&rest_ + 1)),
        rank_(launch.blocks > 1 ? int(cluster_rank()) : 0),
        first_unit_(rank_ * kUnits),
        tick_(*p_.tick),
        order_(p_.order + *p_.first + int64_t(tick_) * launch.batch) {}
  static __device__ RemainingOps& rest(const LaunchArgs& launch, char* shared) {
    return *reinterpret_cast<RemainingOps*>(shared + M::rest(launch.inputs));
  }

  __device__ void run() {
    load();
    if (threadIdx.x < kRows) fetch_sample(0);
    fence_async_proxy();
    __syncthreads();
    uint4 bytes[2][2];
    {
      const Lane l;
      samples_of(0, l).first_chunks(s_.inputs / kChunk, l, bytes);
    }
    for (int i = 0; i < p_.steps; ++i) step(i, bytes);
    store();
    if (s_.blocks > 1)
      cluster_sync();  // all blocks have read the tick; no block exits while others read it
    if (rank_ == 0 && threadIdx.x == 0) *p_.tick = tick_ + p_.steps;
  }

 private:
  // Calls f(offset in shared memory, unit, input) for pairs of neighbouring inputs of w1.
  template <typename F>
  __device__ void for_pairs_of_w1(F f) const {
    const int chunks = s_.inputs / kChunk, pairs = s_.inputs / 2;
    for (int at = int(threadIdx.x); at < kUnits * pairs; at += kThreads) {
      const int row = at / pairs, i = at % pairs * 2, c = i / kChunk, left = i - chunks * kChunk;
      char* place = shared_ + M::kW1 + min(c, chunks) * M::kChunkBytes;
      place += c < chunks ? M::in_chunk(row, position_of(i % kChunk))
                          : left / kPanel * M::kPanelBytes +
                                M::in_panel(row, panel_position_of(left % kPanel));
      f(place, first_unit_ + row, i);
    }
  }
  // Calls f(offset of the half copy, index of the master weight, class, unit) for this block's part
  // of w2.
  template <typename F>
  __device__ void for_w2(F f) const {
    for (int at = int(threadIdx.x); at < kClasses * kUnits; at += kThreads) {
      const int c = at / kUnits, unit = at % kUnits, in64 = unit % 64;
      auto* place = reinterpret_cast<T*>(shared_ + M::kW2 + unit / 64 * (kClasses * 128) + c * 128 +
                                         ((in64 / 8 ^ (c & 7)) << 4) + in64 % 8 * 2);
      f(place, c * 64 + in64, c, first_unit_ + unit);
    }
  }

  __device__ void load() {
    using Pair = std::conditional_t<kMasters, float2, uint32_t>;
    const auto* w1 = static_cast<const Weight*>(p_.layers[0].w);
    for_pairs_of_w1([&](char* place, int unit, int i) {
      *reinterpret_cast<Pair*>(place) =
          unit < s_.hidden ? *reinterpret_cast<const Pair*>(w1 + int64_t(unit) * s_.inputs + i)
                           : Pair{};
    });
    const auto* w2 = static_cast<const Weight*>(p_.layers[1].w);
    for_w2([&](T* place, int master, int c, int unit) {
      const bool real = c < s_.classes && unit < s_.hidden;
      const Weight w = real ? w2[int64_t(c) * s_.hidden + unit] : Weight(0.0f);
      *place = T(w);
      if constexpr (kMasters) w2_masters_[master] = w;
    });
    if (threadIdx.x < kUnits) {
      const int unit = first_unit_ + int(threadIdx.x);
      rest_.b1[threadIdx.x] =
          unit < s_.hidden ? float(static_cast<const Weight*>(p_.layers[0].b)[unit]) : 0.0f;
    }
    if (threadIdx.x < kClasses) {
      const auto* b2 = static_cast<const Weight*>(p_.layers[1].b);
      rest_.b2[threadIdx.x] = int(threadIdx.x) < s_.classes ? float(b2[threadIdx.x]) : 0.0f;
    }
    if constexpr (kRule != PopulationRule::sgd) {
      if (int(threadIdx.x) < s_.classes) m_b2_ = p_.layers[1].m_b[threadIdx.x];
    }
    if constexpr (kRule == PopulationRule::adam) {
      if (int(threadIdx.x) < s_.classes) v_b2_ = p_.layers[1].v_b[threadIdx.x];
    }
  }

  __device__ void store() {
    using Pair = std::conditional_t<kMasters, float2, uint32_t>;
    auto* w1 = static_cast<Weight*>(p_.layers[0].w);
    auto* copy1 = static_cast<T*>(p_.layers[0].copy);
    for_pairs_of_w1([&](const char* place, int unit, int i) {
      if (unit >= s_.hidden) return;
      const int64_t at = int64_t(unit) * s_.inputs + i;
      const Pair pair = *reinterpret_cast<const Pair*>(place);
      *reinterpret_cast<Pair*>(w1 + at) = pair;
      if constexpr (kMasters) {
        if (copy1 != nullptr) *reinterpret_cast<uint32_t*>(copy1 + at) = pack<T>(pair.x, pair.y);
      }
    });
    auto* w2 = static_cast<Weight*>(p_.layers[1].w);
    auto* copy2 = static_cast<T*>(p_.layers[1].copy);
    for_w2([&](const T* place, int master, int c, int unit) {
      if (c >= s_.classes || unit >= s_.hidden) return;
      const int64_t at = int64_t(c) * s_.hidden + unit;
      if constexpr (kMasters) {
        w2[at] = w2_masters_[master];
        if (copy2 != nullptr) copy2[at] = *place;
      } else {
        w2[at] = *place;
      }
    });
    if (threadIdx.x < kUnits && first_unit_ + int(threadIdx.x) < s_.hidden) {
      static_cast<Weight*>(p_.layers[0].b)[first_unit_ + int(threadIdx.x)] =
          Weight(rest_.b1[threadIdx.x]);
    }
    if (rank_ == 0 && int(threadIdx.x) < s_.classes) {
      static_cast<Weight*>(p_.layers[1].b)[threadIdx.x] = Weight(rest_.b2[threadIdx.x]);
      if constexpr (kRule != PopulationRule::sgd) p_.layers[1].m_b[threadIdx.x] = m_b2_;
      if constexpr (kRule == PopulationRule::adam) p_.layers[1].v_b[threadIdx.x] = v_b2_;
    }
  }

  // Sample threadIdx.x of a step. Positions past the batch take its first sample and contribute no
  // gradient.
  __device__ void fetch_sample(int number) {
    const int row = int(threadIdx.x) < s_.batch ? int(threadIdx.x) : 0;
    const int32_t sample = order_[int64_t(number) * s_.batch + row];
    rest_.samples[number % 2][threadIdx.x] = sample;
    rest_.labels[number % 2][threadIdx.x] = uint8_t(p_.labels[sample]);
  }

  __device__ static float rounded(float w) { return float(Weight(w)); }

  __device__ SampleBytes samples_of(int number, const Lane& l) const {
    return {p_, rest_, number % 2, l, s_.inputs};
  }

  // `bytes` holds the first two chunks of the step's samples, and those of the next step on return.
  __device__ void step(int number, uint4 (&bytes)[2][2]) {
    const int now = number % 2;
    const uint32_t base = shared_address(shared_);
    const Rule<kRule> rule(p_, tick_, number);
    const float over_batch = 1.0f / float(s_.batch);
    const SampleBytes x = samples_of(number, Lane());
    uint32_t h[kUnits / 16][4], d[1][4], dz[kUnits / 16][4];
    {
      float z[kUnits / 2];
      first_layer<T, kUnits, kMasters>(x, bytes, shared_, Lane(), s_.inputs,
                                       kScaled ? kMasterFactor : 1.0f, z);
      // The addresses of the next batch are known long before they are needed.
      if (threadIdx.x < kRows && number + 1 < p_.steps) fetch_sample(number + 1);
      activate(Lane(), z, h);
    }
    if constexpr (kMasters) __syncthreads();  // the rounded weights of both buffers have been read
    float logits[8];
    multiply_logits<T, kUnits>(shared_ + M::kStaged, base + M::kStaged, base + M::kW2, Lane(),
                               s_.blocks, h, logits);
    loss<T>(shared_ + M::kD, rest_, now, Lane(), s_.classes, s_.batch, logits, d[0]);
    fence_async_proxy();
    multiply_dz<T, kUnits>(base + M::kW2, h, d, dz);
    if (s_.blocks > 1) cluster_wait();
    uint32_t columns[kRows / 16][4];
    update_rest(Lane(), number, rule, over_batch, h, dz, columns);
    const float factor = p_.scale * over_batch;
    FirstUpdates<T, kUnits, kMasters, kRule>(shared_, Lane(), s_.inputs, factor, rule,
                                             moments(0).at(int64_t(first_unit_) * s_.inputs))
        .run(x, bytes[0], columns, [&] {
          if (number + 1 < p_.steps) {
            const Lane l;
            samples_of(number + 1, l).first_chunks(s_.inputs / kChunk, l, bytes);
          }
        });
    fence_async_proxy();
    __syncthreads();
  }

  __device__ Moments moments(int layer) const {
    return {p_.layers[layer].m_w, p_.layers[layer].v_w};
  }

  __device__ void activate(const Lane& l, const float (&z)[kUnits / 2],
                           uint32_t (&h)[kUnits / 16][4]) const {
    const float scale = kScaled ? p_.scale / kMasterFactor : p_.scale;
#pragma unroll
    for (int n = 0; n < kUnits / 8; ++n) {
      const float2 bias = *reinterpret_cast<const float2*>(rest_.b1 + 8 * n + 2 * l.t);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        h[n / 2][2 * (n % 2) + side] =
            pack<T>(fmaxf(0.0f, scale * z[4 * n + 2 * side] + bias.x),
                    fmaxf(0.0f, scale * z[4 * n + 2 * side + 1] + bias.y));
      }
    }
  }

  // Updates everything but w1; dz becomes the operand of its product.
  __device__ void update_rest(const Lane& l, int number, const Rule<kRule>& rule, float over_batch,
                              const uint32_t (&h)[kUnits / 16][4],
                              const uint32_t (&dz)[kUnits / 16][4],
                              uint32_t (&columns)[kRows / 16][4]) {
    char* staged = shared_ + M::kStaged;
    const auto round = [&]<int kPart>() {
      char* panel = shared_ + M::kW2 + kPart * (kClasses * 128);
      stage_units<kPart>(staged, l, h);
      __syncthreads();
      if (kPart == 0) update_b2(number, rule, over_batch);
      if (l.group == kPart) {
        update_w2<T, M, kMasters>(shared_, panel, w2_masters_, l, s_.classes, over_batch, rule,
                                  moments(1).at(first_unit_ + 64 * kPart), s_.hidden);
      }
      __syncthreads();
      stage_units<kPart>(staged, l, dz);
      __syncthreads();
      if (kUnits == 64 || l.group == kPart) load_dz(shared_address(staged), l, columns);
      __syncthreads();
    };
    round.template operator()<0>();
    if constexpr (kUnits == 128) round.template operator()<1>();
    const float2 sums = sums_over_samples<T>(columns);
    if (l.t == 0 && (kUnits == 128 || l.group == 0)) {
      const Moments moments{p_.layers[0].m_b, p_.layers[0].v_b};
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int unit = 16 * (kUnits == 128 ? l.warp : l.warp % 4) + l.g + 8 * side;
        WithMoments<kRule, float> more;
        more.load(moments.at(first_unit_ + unit));
        float& b = rest_.b1[unit];
        b = rounded(rule(b, side == 0 ? sums.x : sums.y, over_batch, more.m, more.v));
        more.store(moments.at(first_unit_ + unit));
      }
    }
  }

  __device__ void update_b2(int number, const Rule<kRule>& rule, float over_batch) {
    if (int(threadIdx.x) < s_.classes) {
      float sum = 0;
      for (int i = 0; i < kWarps; ++i) sum += rest_.d_sums[i][threadIdx.x];
      float& b = rest_.b2[threadIdx.x];
      b = rounded(rule(b, sum, over_batch, m_b2_, v_b2_));
    }
    if (rank_ != 0 || threadIdx.x != 0) return;
    float sum = 0;
    int correct = 0;
    for (int i = 0; i < kWarps; ++i) {
      sum += rest_.losses[i];
      correct += rest_.corrects[i];
    }
    p_.loss[tick_ + number] = double(sum * over_batch);
    if (p_.correct != nullptr) p_.correct[tick_ + number] = correct;
  }

  const LaunchArgs& s_;
  char* shared_;
  RemainingOps& rest_;
  const MemberArgs& p_;
  float* w2_masters_;
  int rank_, first_unit_, tick_;
  const int32_t* order_;
  float m_b2_ = 0, v_b2_ = 0;  // for class threadIdx.x: all blocks keep the same b2 and moments
};

template <typename T, int kUnits, bool kMasters, PopulationRule kRule>
__global__ void __launch_bounds__(kThreads, 1)
    population_train_kernel(const __grid_constant__ LaunchArgs launch) {
#if __CUDA_ARCH__ >= 900  // older GPUs have neither clusters nor wgmma
  extern __shared__ __align__(1024) char memory[];
  using OneMember = Trainer<T, kUnits, kMasters, kRule>;
  MemberArgs& member = OneMember::rest(launch, memory).member;
  if (threadIdx.x == 0) {
    member =
        launch.members == nullptr ? launch.one : launch.members[int(blockIdx.x) / launch.blocks];
  }
  __syncthreads();
  if (member.steps > 0) OneMember(launch, memory).run();
#endif
}

}  // namespace ridgeline::cuda::population
