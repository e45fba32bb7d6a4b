#pragma once

// The training step of grid_sharded.h, for one block.

#include <cstdint>

#include "ridgeline/cuda/mlp_train/grid_sharded_state.cuh"

namespace ridgeline::cuda::mlp {

template <typename T, int kHidden, int kTiles, bool kMasters>
class GridShardedTrainer : GridShardedState<T, kHidden, kTiles, kMasters> {
 public:
  __device__ GridShardedTrainer(const GridShardedParams& params, char* shared)
      : Base(params, shared) {}

  __device__ void run() {
    this->template move_weights<false>();
    Inputs x;
    load_inputs(0, x);
    __syncthreads();
#pragma unroll 1
    for (int t = 0; t < args_.steps; ++t) {
      const float2 last = rate_, now = __ldg(p_.rates + t);
      const int label = __ldg(p_.labels + t * kGridShardedSamples + (threadIdx.x >> 4));
      forward(0, t, x, p_.input_tiles);
      if (t > 0) update_first_hidden(t - 1, last);
      __threadfence();  // the cleared buffers are visible before anything is sent
      rate_ = now;
      {
        Units y;
        receive(exchanged(0, t), tiles(0), y);
        forward(1, t, y, tiles(0));
        keep_y0(y);
      }
      if constexpr (kHidden == 3) {
        receive(exchanged(1, t), tiles(1), y1_);
        forward(2, t, y1_, tiles(1));
      }
      Units y, dy;
      receive(exchanged(kHidden - 1, t), tiles(kHidden - 1), y);
      classify(t, label, y);
      descend(y, dy);
      backward(kHidden - 1, t, dy);
      update_top(y);
      if constexpr (kHidden == 3) {
        update_hidden(2, t, dy);
        receive(exchanged(kDy1, t), tiles(1), dy1_);
        backward(1, t, dy1_);
      } else {
        dy1_ = dy;
      }
      Inputs last_x;
      load_inputs(t, last_x);
      load_inputs(min(t + 1, args_.steps - 1), x);
      __syncthreads();  // dy(0) is complete
      update<false>(rows(0), last_x, p_.input_tiles, own_dy(0), rate_);
      update_bias(own_dy(0), bias(0), 8, rate_);
    }
    update_first_hidden(args_.steps - 1, rate_);
    __syncthreads();
    this->template move_weights<true>();
  }

 private:
  using Base = GridShardedState<T, kHidden, kTiles, kMasters>;
  using Map = typename Base::Map;
  using Tile = typename Base::Tile;
  using Slot = typename Base::Slot;
  using Units = typename Base::Units;
  using Inputs = typename Base::Inputs;
  using Base::args_;
  using Base::bias;
  using Base::block_;
  using Base::columns;
  using Base::exchanged;
  using Base::floats;
  using Base::halves;
  using Base::kDy1;
  using Base::keep_y0;
  using Base::kStride;
  using Base::lane_;
  using Base::load;
  using Base::load_inputs;
  using Base::load_y0;
  using Base::own_dy;
  using Base::own_y;
  using Base::p_;
  using Base::receive;
  using Base::rows;
  using Base::send;
  using Base::set_top;
  using Base::tile_of;
  using Base::tiles;
  using Base::top;
  using Base::warp_;
  using Base::width;

  // Sums the block's own outputs over this warp's tiles, into its slot of `sums`.
  template <typename Values>
  __device__ void multiply(const Slot* w, const Values& v, int count, float* sums) const {
    constexpr int kCount = sizeof(v.tile) / sizeof(v.tile[0]);
    float sum[2][2][4] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (tile_of(i) >= count) break;
      const uint2 b = Tile::operand(w[tile_of(i) * 32]);
#pragma unroll
      for (int s = 0; s < 2; ++s) mma_m16n8k16<T>(sum[i & 1][s], v.tile[i].r[s], b.x, b.y);
    }
    if constexpr (Map::kTight) __syncthreads();  // the previous stage's sums have been read
    float4* to = reinterpret_cast<float4*>(sums) + warp_ * 64 + lane_;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      to[32 * s] = {sum[0][s][0] + sum[1][s][0], sum[0][s][1] + sum[1][s][1],
                    sum[0][s][2] + sum[1][s][2], sum[0][s][3] + sum[1][s][3]};
    }
  }
  // Two neighbouring outputs of one sample, added over the warps, for thread e of 128.
  __device__ float2 added(const float* sums, int e) const {
    const float2* part = reinterpret_cast<const float2*>(sums) + e;
    float2 sum[2] = {};
#pragma unroll
    for (int w = 0; w < kGridShardedWarps; ++w) {
      const float2 v = part[w * 128];
      sum[w & 1].x += v.x, sum[w & 1].y += v.y;
    }
    return {sum[0].x + sum[1].x, sum[0].y + sum[1].y};
  }
  __device__ float* sums_of(int which) const {
    return floats(Map::kSums + (Map::kTight ? 0 : (which & 1) * Map::kSumBytes));
  }

  // y(l) of the block's own units from v, the values of the layer below.
  template <typename Values>
  __device__ void forward(int l, int t, const Values& v, int count) {
    float* sums = sums_of(l);
    multiply(rows(l), v, count, sums);
    __syncthreads();
    const int e = threadIdx.x;
    if (e >= 128) return;
    const float2 sum = added(sums, e);
    const int lane = (e >> 1) & 31, s = e >> 6, n = 2 * (lane & 3);
    const float2 b = *reinterpret_cast<const float2*>(bias(l) + n);
    const int left = width(l) - 8 * block_;
    const ActivationFn f = args_.shape.activation;
    const uint32_t pair = Pair<T>::pack(n < left ? activate(f, sum.x + b.x) : 0.0f,
                                        n + 1 < left ? activate(f, sum.y + b.y) : 0.0f);
    if (8 * block_ < 16 * tiles(l)) send(l, t, e, n >> 2, s, lane >> 2, pair);
    store_own(own_y(l, t), n, 16 * s + (lane >> 2) + 8 * (e & 1), pair);
  }

  // dy(l - 1) of the block's own units from dy(l); sent to all blocks unless l = 1.
  __device__ void backward(int l, int t, const Units& dy) {
    float* sums = sums_of(l == 1);
    multiply(columns(l), dy, tiles(l), sums);
    __syncthreads();
    const int e = threadIdx.x;
    if (e >= 128) return;
    const float2 sum = added(sums, e);
    const int lane = (e >> 1) & 31, s = e >> 6, n = 2 * (lane & 3);
    const int sample = 16 * s + (lane >> 2) + 8 * (e & 1);
    const T* y = own_y(l - 1, t) + n * kStride + sample;
    const uint32_t below = reinterpret_cast<const uint16_t&>(y[0]) |
                           uint32_t{reinterpret_cast<const uint16_t&>(y[kStride])} << 16;
    const uint32_t pair = times_derivative<T>(args_.shape.activation, sum.x, sum.y, below);
    if (l > 1 && 8 * block_ < 16 * tiles(l - 1)) send(kDy1, t, e, n >> 2, s, lane >> 2, pair);
    store_own(own_dy(l - 1), n, sample, pair);
  }

  __device__ void store_own(T* own, int n, int sample, uint32_t pair) const {
    T* at = own + n * kStride + sample;
    at[0] = reinterpret_cast<const T*>(&pair)[0];
    at[kStride] = reinterpret_cast<const T*>(&pair)[1];
  }

  // Computes logits from y(H-1), their gradient, and the loss. `label` is that of sample thread /
  // 16.
  __device__ void classify(int t, int label, const Units& y) {
    float* sums = sums_of(0);
    __syncthreads();  // the previous stage's sums have been read
    {
      float sum[2][2][4] = {};
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (tile_of(i) >= tiles(kHidden - 1)) break;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint2 b = Tile::operand(top(n, tile_of(i)));
#pragma unroll
          for (int s = 0; s < 2; ++s) mma_m16n8k16<T>(sum[n][s], y.tile[i].r[s], b.x, b.y);
        }
      }
      float4* to = reinterpret_cast<float4*>(sums) + warp_ % kSummands * 128 + lane_;
      const bool first = kSummands == kGridShardedWarps || warp_ >= kSummands;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* v = sum[i >> 1][i & 1];
        if (first) to[32 * i] = {v[0], v[1], v[2], v[3]};
      }
      if constexpr (kSummands < kGridShardedWarps) {  // the other warps add theirs
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* v = sum[i >> 1][i & 1];
          const float4 w = to[32 * i];
          if (!first) to[32 * i] = {v[0] + w.x, v[1] + w.y, v[2] + w.z, v[3] + w.w};
        }
      }
    }
    __syncthreads();
    {
      const int e = threadIdx.x, lane = (e >> 2) & 31;
      float sum[2] = {};
#pragma unroll
      for (int w = 0; w < kSummands; ++w) sum[w & 1] += sums[w * 512 + e];
      const int c = 8 * (e >> 8) + 2 * (lane & 3) + (e & 1);
      const int sample = 16 * (e >> 7 & 1) + (lane >> 2) + 8 * (e >> 1 & 1);
      floats(Map::kLogits)[sample * 17 + c] = sum[0] + sum[1] + floats(Map::kTopBias)[c];
    }
    __syncthreads();
    const int sample = threadIdx.x >> 4, c = threadIdx.x & 15, classes = width(kHidden);
    const bool live = sample < args_.shape.batch && c < classes;
    const float z = c < classes ? floats(Map::kLogits)[sample * 17 + c] : -INFINITY;
    float largest = z;
#pragma unroll
    for (int d = 8; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
    const float power = __expf(z - largest);
    float total = power;
#pragma unroll
    for (int d = 8; d > 0; d /= 2) total += __shfl_xor_sync(~0u, total, d);
    const T d = T(live ? power * __fdividef(1.0f, total) - (c == label ? 1.0f : 0.0f) : 0.0f);
    halves(Map::kDlogits)[sample * Map::kClassStride + c] = d;
    halves(Map::kDlogitsT)[c * kStride + sample] = d;
    if (block_ == int(gridDim.x) - 1) {
      const uint32_t hits = __ballot_sync(~0u, z == largest) >> (lane_ & 16) & 0xffff;
      if (sample < args_.shape.batch) {
        if (c == label) floats(Map::kRowLoss)[sample] = __logf(total) + largest - z;
        if (c == 0) floats(Map::kRowCorrect)[sample] = __ffs(int(hits)) - 1 == label;
      }
    }
    __syncthreads();
    if (block_ == int(gridDim.x) - 1 && warp_ == kGridShardedWarps - 1) report(t);
  }

  __device__ void report(int t) const {
    const bool live = lane_ < args_.shape.batch;
    float loss = live ? floats(Map::kRowLoss)[lane_] : 0.0f;
    float correct = live ? floats(Map::kRowCorrect)[lane_] : 0.0f;
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
      loss += __shfl_xor_sync(~0u, loss, d);
      correct += __shfl_xor_sync(~0u, correct, d);
    }
    if (lane_ > 0) return;
    args_.loss[t] = loss / args_.shape.batch;
    args_.correct[t] = int(correct);
  }

  // dy(H-1) of this warp's tiles, and of the block's own units in shared memory.
  __device__ void descend(const Units& y, Units& dy) {
    uint32_t a[2][4];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint32_t* row = reinterpret_cast<const uint32_t*>(halves(Map::kDlogits)) +
                            ((16 * s + (lane_ >> 2)) * Map::kClassStride) / 2 + (lane_ & 3);
      a[s][0] = row[0], a[s][1] = row[4 * Map::kClassStride];
      a[s][2] = row[4], a[s][3] = row[4 * Map::kClassStride + 4];
    }
    const ActivationFn f = args_.shape.activation;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const uint2 low = Tile::operand(top(0, tile_of(i))), high = Tile::operand(top(1, tile_of(i)));
      const uint32_t b[4] = {transpose_8x8(low.x), transpose_8x8(high.x), transpose_8x8(low.y),
                             transpose_8x8(high.y)};
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        float first[4] = {}, second[4] = {};
        mma_m16n8k16<T>(first, a[s], b[0], b[1]);
        mma_m16n8k16<T>(second, a[s], b[2], b[3]);
        const uint32_t(&v)[4] = y.tile[i].r[s];
        uint32_t(&d)[4] = dy.tile[i].r[s];
        d[0] = times_derivative<T>(f, first[0], first[1], v[0]);
        d[1] = times_derivative<T>(f, first[2], first[3], v[1]);
        d[2] = times_derivative<T>(f, second[0], second[1], v[2]);
        d[3] = times_derivative<T>(f, second[2], second[3], v[3]);
      }
      if (tile_of(i) == block_ >> 1 && (lane_ >> 1 & 1) == (block_ & 1)) keep_own(dy.tile[i]);
    }
  }
  // Stores this lane's four own units as own[unit][sample].
  __device__ void keep_own(const Fragment<2>& dy) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int n = 4 * (lane_ & 1) + (i & 2);
      store_own(own_dy(kHidden - 1), n, 16 * (i >> 2) + (lane_ >> 2) + 8 * (i & 1),
                dy.r[i >> 2][i & 3]);
    }
  }

  // w = keep * w - step * own . v over the samples, for this warp's tiles of the block's own
  // outputs; with kTop for all classes of the last layer.
  template <bool kTop, typename Values>
  __device__ void update(Slot* w, const Values& v, int count, const T* own, float2 rate) const {
    constexpr int kCount = sizeof(v.tile) / sizeof(v.tile[0]);
    const uint32_t* row =
        reinterpret_cast<const uint32_t*>(own) + (lane_ >> 2) * kStride / 2 + (lane_ & 3);
    uint32_t a[2][4];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      a[s][0] = row[8 * s], a[s][2] = row[8 * s + 4];
      a[s][1] = kTop ? row[8 * s + 4 * kStride] : 0;
      a[s][3] = kTop ? row[8 * s + 4 * kStride + 4] : 0;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (tile_of(i) >= count) break;
      Slot weights = kTop ? top(0, tile_of(i)) : w[tile_of(i) * 32];
      Slot others = kTop ? top(1, tile_of(i)) : Slot{};
      float low[4] = {}, high[4] = {};
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t(&r)[4] = v.tile[i].r[s];
        mma_m16n8k16<T>(low, a[s], transpose_8x8(r[0]), transpose_8x8(r[1]));
        mma_m16n8k16<T>(high, a[s], transpose_8x8(r[2]), transpose_8x8(r[3]));
      }
      Tile::update(weights, {low[0], low[1], high[0], high[1]}, rate.x, rate.y);
      if constexpr (kTop) {
        Tile::update(others, {low[2], low[3], high[2], high[3]}, rate.x, rate.y);
        set_top(0, tile_of(i), weights);
        set_top(1, tile_of(i), others);
      } else {
        w[tile_of(i) * 32] = weights;
      }
    }
  }
  // The last warp updates the block's own biases, for outputs below `count`.
  __device__ void update_bias(const T* own, float* to, int count, float2 rate) const {
    if (warp_ != kGridShardedWarps - 1 || lane_ >= count) return;
    const uint4* row = reinterpret_cast<const uint4*>(own + lane_ * kStride);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // 0 past the batch
      const uint4 v = row[i];
      const float2 a = Pair<T>::unpack(v.x), b = Pair<T>::unpack(v.y), c = Pair<T>::unpack(v.z),
                   d = Pair<T>::unpack(v.w);
      sum += ((a.x + a.y) + (b.x + b.y)) + ((c.x + c.y) + (d.x + d.y));
    }
    const float next = fmaf(-rate.y, sum, to[lane_]);
    to[lane_] = kMasters ? next : float(T(next));
  }

  __device__ void update_top(const Units& y) {
    const T* dlogits = halves(Map::kDlogitsT);
    update<true>(nullptr, y, tiles(kHidden - 1), dlogits, rate_);
    update_bias(dlogits, floats(Map::kTopBias), kGridShardedClasses, rate_);
  }
  // Updates layer 2 of three: columns from dy(2), rows from y(1).
  __device__ void update_hidden(int l, int t, const Units& dy) {
    update<false>(columns(l), dy, tiles(l), own_y(l - 1, t), rate_);
    if constexpr (!kKeep) load(exchanged(l - 1, t), tiles(l - 1), y1_);
    update<false>(rows(l), y1_, tiles(l - 1), own_dy(l), rate_);
    update_bias(own_dy(l), bias(l), 8, rate_);
  }
  // Updates layer 1 for step t, while the next step is in progress.
  __device__ void update_first_hidden(int t, float2 rate) {
    if constexpr (!kKeep && kHidden == 3) load(exchanged(kDy1, t), tiles(1), dy1_);
    update<false>(columns(1), dy1_, tiles(1), own_y(0, t), rate);
    Units y;
    load_y0(t, y);
    update<false>(rows(1), y, tiles(0), own_dy(1), rate);
    update_bias(own_dy(1), bias(1), 8, rate);
  }

  // In a wide layer, values that are used again later are read from L2 again, because there are not
  // enough registers.
  static constexpr bool kKeep = kTiles <= 2;
  // How many warps' sums of logits are stored side by side.
  static constexpr int kSummands = Map::kTight ? kGridShardedWarps / 2 : kGridShardedWarps;
  Units y1_, dy1_;
  float2 rate_ = {1.0f, 0.0f};
};

}  // namespace ridgeline::cuda::mlp
