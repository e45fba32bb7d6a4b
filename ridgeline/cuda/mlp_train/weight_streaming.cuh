#pragma once

// Training steps with the weights in L2 and HBM. With H hidden layers, a step is
//   forward   y(l) of the block's own units: a pass over their rows of the weights
//   logits    each block multiplies its own units of y(H-1); the sum over blocks takes two barriers
//   backward  dy(l-1) of the block's own units, and the update of their columns of the weights: one
//             pass that reads each weight, uses it, and writes it
//   layer 0   updated by rows
#include <cstdint>

#include "ridgeline/cuda/mlp_train/softmax.cuh"
#include "ridgeline/cuda/mlp_train/weight_streaming_state.cuh"

namespace ridgeline::cuda::mlp {

template <typename T, int kSampleTiles, bool kMasters, int kParts>
class WeightStreamingTrainer : WeightStreamingState<T, kSampleTiles, kMasters, kParts> {
 public:
  __device__ WeightStreamingTrainer(const WeightStreamingParams& params, char* shared)
      : Base(params, shared) {}

  __device__ void run() {
    Base::template move_weights<false>();
    gather(0);
    grid_sync();
    for (int t = 0; t < args_.steps; ++t) {
      const double lr = __ldg(args_.lr + t);
      keep_ = float(1.0 - lr * args_.weight_decay), step_ = float(lr * share_);
      const int hidden = p_.layers - 1;
      for (int l = 0; l < hidden; ++l) forward(l, t);
      logits(t);
      backward_top();
      for (int l = hidden - 1; l >= 1; --l) backward(l);
      update_first(t);
    }
    grid_sync();
    Base::template move_weights<true>();
  }

 private:
  using Base = WeightStreamingState<T, kSampleTiles, kMasters, kParts>;
  using Acts = typename Base::Acts;
  using Sums = typename Base::Sums;
  using Pass = typename Base::Pass;
  using Weights = typename Base::Weights;
  using Base::acts;
  using Base::args_;
  using Base::arrive;
  using Base::block_;
  using Base::columns;
  using Base::floats;
  using Base::gather;
  using Base::grid_sync;
  using Base::halves;
  using Base::keep_;
  using Base::lane_;
  using Base::lanes;
  using Base::own_count;
  using Base::own_first;
  using Base::p_;
  using Base::prefetch;
  using Base::put;
  using Base::reduce;
  using Base::ring;
  using Base::rows;
  using Base::sample_stride_;
  using Base::set;
  using Base::share_;
  using Base::shared_;
  using Base::shared_lanes;
  using Base::step_;
  using Base::stream;
  using Base::transposed;
  using Base::update;
  using Base::wait;
  using Base::warp_;
  using Base::weights;
  using Base::work;
  using Base::x;

  __device__ void forward(int l, int t) {
    const bool last = l + 2 == p_.layers;
    const uint4* v = l == 0 ? x(t) : lanes(p_.layer[l - 1].y);
    bool waited = l == 0;
    for (int first = 0; first < p_.layer[l].own; first += kParts) {
      const Pass pass = rows(l, first, v, false);
      if (first > 0) __syncthreads();
      // Other blocks update layer 1 until they reach the barrier after y(0).
      if (l == 1 && !waited) wait();
      prefetch(pass);
      if (l > 1 && !waited) wait();
      waited = true;
      Sums sums;
      stream(pass, [&](int, int stage) {
        const Acts a = acts(stage);
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          if (i >= pass.parts) continue;
          const uint4 b = *ring(stage, i);
#pragma unroll
          for (int s = 0; s < kSampleTiles; ++s) {
            mma_m16n8k16<T>(sums.v[i][s][0], a.r[s], b.x, b.y);
            mma_m16n8k16<T>(sums.v[i][s][1], a.r[s], b.z, b.w);
          }
        }
      });
      const float* bias = floats(p_.layer[l].bias);
      const int left = p_.layer[l].out - own_first(l) * 16;
      reduce(sums, p_.layer[l].own - first, [&](int part, int unit, float4 sum, int at) {
        const int own = (first + part) * 16 + unit;
        float y[4];
        const float in[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int n = own + (i & 1);
          y[i] = n < left ? activate(args_.shape.activation, in[i] + bias[n]) : 0.0f;
        }
        finish(p_.layer[l].own_y, last ? -1 : p_.layer[l].y, l, first, at, pass.parts,
               {Pair<T>::pack(y[0], y[1]), Pair<T>::pack(y[2], y[3])});
      });
    }
    if (!last) arrive();
  }

  // Stores a half slot (4 values: two units of two samples) of the block's own units, and publishes
  // it.
  __device__ void finish(int own_at, int64_t to, int l, int first, int at, int parts, uint2 pair) {
    const int slot = first * kSampleTiles * 64 + at;
    reinterpret_cast<uint2*>(shared_ + own_at)[slot] = pair;
    if (to >= 0 && at < parts * kSampleTiles * 64) {
      __stcg(reinterpret_cast<uint2*>(work(to)) + int64_t{own_first(l)} * kSampleTiles * 64 + slot,
             pair);
    }
  }

  // Computes the logits from all blocks' units, the loss, and dlogits.
  __device__ void logits(int t) {
    const int top = p_.layers - 1, l = top - 1;
    const auto& layer = p_.layer[top];
    const int count = layer.out_tiles * kSampleTiles * 256;
    __syncthreads();  // own_y is complete
    float4* mine = reinterpret_cast<float4*>(shared_ + p_.ring);
    const int own = own_count(l);
    float* partial = reinterpret_cast<float*>(work(p_.partial));
    for (int c = 0; c < layer.out_tiles; ++c) {
      float sum[kSampleTiles][2][4] = {};
      for (int i = warp_; i < own; i += kWarps) {
        const uint4 b =
            __ldcg(lanes(layer.w) + (int64_t{c} * layer.in_tiles + own_first(l) + i) * 32 + lane_);
#pragma unroll
        for (int s = 0; s < kSampleTiles; ++s) {
          uint32_t a[4];
          set(a, shared_lanes(p_.layer[l].own_y)[(i * kSampleTiles + s) * 32 + lane_]);
          mma_m16n8k16<T>(sum[s][0], a, b.x, b.y);
          mma_m16n8k16<T>(sum[s][1], a, b.z, b.w);
        }
      }
      const int warps = min(own, kWarps);
      if (warp_ < warps) {
#pragma unroll
        for (int s = 0; s < kSampleTiles; ++s) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            mine[((warp_ * kSampleTiles + s) * 2 + h) * 32 + lane_] = {sum[s][h][0], sum[s][h][1],
                                                                       sum[s][h][2], sum[s][h][3]};
          }
        }
      }
      __syncthreads();
      for (int e = threadIdx.x; e < kSampleTiles * 256; e += kBlockThreads) {
        float v = 0.0f;
        for (int w = 0; w < warps; ++w) v += floats(p_.ring)[w * kSampleTiles * 256 + e];
        __stcg(partial + (c * kSampleTiles * 256 + e) * int64_t{p_.blocks} + block_, v);
      }
      __syncthreads();
    }
    arrive();
    if (t + 1 < args_.steps) gather(t + 1);
    wait();
    float* sums = reinterpret_cast<float*>(work(p_.logit_sum));
    for (int e = block_ + p_.blocks * warp_; e < count; e += p_.blocks * kWarps) {
      float v = 0.0f;
      for (int b = lane_; b < p_.blocks; b += 32) {
        v += __ldcg(partial + e * int64_t{p_.blocks} + b);
      }
      for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
      if (lane_ == 0) __stcg(sums + e, v);
    }
    grid_sync();
    const float* bias = floats(layer.bias);
    const int width = 16 * layer.out_tiles;
    for (int e = threadIdx.x; e < count; e += kBlockThreads) {
      const int i = e & 3, lane = (e >> 2) & 31, h = (e >> 7) & 1, s = (e >> 8) % kSampleTiles;
      const int c = (e >> 8) / kSampleTiles * 16 + 4 * (lane & 3) + 2 * h + (i & 1);
      const int sample = 16 * s + (lane >> 2) + 8 * (i >> 1);
      floats(p_.logits)[sample * width + c] = __ldcg(sums + e) + bias[c];
    }
    __syncthreads();
    softmax(t);
  }

  __device__ void softmax(int t) {
    const int width = 16 * p_.layer[p_.layers - 1].out_tiles;
    const int* labels = reinterpret_cast<const int*>(shared_ + p_.labels) +
                        (t & (kLabelRing - 1)) * 16 * kSampleTiles;
    for (int b = warp_; b < 16 * kSampleTiles; b += kWarps) {
      const bool live = b < args_.shape.batch;
      softmax_xent_row<T, 32>(
          floats(p_.logits) + b * width, p_.classes, width, width, live ? labels[b] : -1, live,
          lane_, halves(p_.dlogits) + b * p_.class_stride, halves(p_.dlogits_t) + b, sample_stride_,
          floats(p_.sample_loss) + b, reinterpret_cast<int*>(shared_ + p_.sample_correct) + b);
    }
    __syncthreads();
    if (block_ == p_.blocks - 1 && warp_ == kWarps - 1) {
      report_batch<kSampleTiles>(args_, t, floats(p_.sample_loss),
                                 reinterpret_cast<const int*>(shared_ + p_.sample_correct), lane_);
    }
    // The last layer's bias is the same in all blocks.
    if (threadIdx.x < p_.classes) {
      const T* d = halves(p_.dlogits_t) + threadIdx.x * sample_stride_;
      float sum = 0.0f;
#pragma unroll
      for (int b = 0; b < 16 * kSampleTiles; ++b) sum += float(d[b]);
      step_bias(floats(p_.layer[p_.layers - 1].bias)[threadIdx.x], sum);
    }
  }

  __device__ void step_bias(float& bias, float sum) const {
    const float next = fmaf(-step_, sum, bias);
    bias = kMasters ? next : float(T(next));
  }

  // dy of the last hidden layer's own units, and the update of the last layer, which has few tiles.
  __device__ void backward_top() {
    const int top = p_.layers - 1;
    transpose_own(p_.layer[top - 1].own_y, top - 1);
    for (int first = 0; first < p_.layer[top - 1].own; first += kParts) {
      const Pass pass = columns(top, first, nullptr);
      if (first > 0) __syncthreads();
      Sums sums;
      if (warp_ < pass.tiles && pass.parts > 0) {
        prefetch(pass);
        copy_async_wait<0>();
        Acts d;
#pragma unroll
        for (int s = 0; s < kSampleTiles; ++s) {
          const uint32_t* row = reinterpret_cast<const uint32_t*>(
              halves(p_.dlogits) + (16 * s + (lane_ >> 2)) * p_.class_stride + 16 * warp_ +
              4 * (lane_ & 3));
          const int below = 4 * p_.class_stride;
          d.r[s][0] = row[0], d.r[s][1] = row[below];
          d.r[s][2] = row[1], d.r[s][3] = row[below + 1];
        }
        back(pass, first, warp_, 0, d, sums);
      }
      finish_dy(top - 1, first, pass.parts, sums);
    }
    after_dy(top - 1);
  }

  __device__ void backward(int l) {
    transpose_own(p_.layer[l - 1].own_y, l - 1);
    bool waited = false;
    for (int first = 0; first < p_.layer[l - 1].own; first += kParts) {
      const Pass pass = columns(l, first, lanes(p_.layer[l].dy));
      if (first > 0) __syncthreads();
      prefetch(pass);
      if (!waited) wait();
      waited = true;
      Sums sums;
      stream(pass, [&](int tile, int stage) { back(pass, first, tile, stage, acts(stage), sums); });
      finish_dy(l - 1, first, pass.parts, sums);
    }
    after_dy(l - 1);
  }

  // One tile of 16 outputs: its part of dy of the layer below, then the update.
  __device__ void back(const Pass& pass, int first, int tile, int stage, const Acts& d,
                       Sums& sums) {
    uint32_t dt[kSampleTiles][4];
    transposed(d, dt);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (i >= pass.parts) continue;
      Weights w = weights(stage, i);
      const uint4 b = w.operand();
      const uint32_t b0 = transpose_8x8(b.x), b1 = transpose_8x8(b.z), b2 = transpose_8x8(b.y),
                     b3 = transpose_8x8(b.w);
      uint32_t y[kSampleTiles][4];
#pragma unroll
      for (int s = 0; s < kSampleTiles; ++s) {
        mma_m16n8k16<T>(sums.v[i][s][0], d.r[s], b0, b1);
        mma_m16n8k16<T>(sums.v[i][s][1], d.r[s], b2, b3);
        set(y[s], shared_lanes(p_.transposed)[((first + i) * kSampleTiles + s) * 32 + lane_]);
      }
      update(w, dt, y);
      put(pass, tile, i, w);
    }
  }

  __device__ void finish_dy(int l, int first, int parts, const Sums& sums) {
    reduce(sums, p_.layer[l].own - first, [&](int, int, float4 sum, int at) {
      const uint2 y = reinterpret_cast<const uint2*>(
          shared_ + p_.layer[l].own_y)[first * kSampleTiles * 64 + at];
      const auto f = args_.shape.activation;
      const uint2 d = {times_derivative<T>(f, sum.x, sum.y, y.x),
                       times_derivative<T>(f, sum.z, sum.w, y.y)};
      finish(p_.own_dy, l > 0 ? p_.layer[l].dy : -1, l, first, at, parts, d);
    });
  }

  // Publishes dy(l) to the other blocks, and updates the bias of layer l.
  __device__ void after_dy(int l) {
    if (l > 0) {
      arrive();
    } else {
      __syncthreads();
    }
    const T* dy = halves(p_.own_dy);
    for (int n = threadIdx.x; n < 16 * own_count(l); n += kBlockThreads) {
      float sum = 0.0f;
#pragma unroll
      for (int b = 0; b < 16 * kSampleTiles; ++b) {  // 0 past the batch
        const int slot = ((n >> 4) * kSampleTiles + (b >> 4)) * 32 + (b & 7) * 4 + ((n >> 2) & 3);
        sum += float(dy[slot * 8 + (n & 2) * 2 + ((b >> 3) & 1) * 2 + (n & 1)]);
      }
      step_bias(floats(p_.layer[l].bias)[n], sum);
    }
  }

  // Copies own activations or gradients of layer l to p_.transposed, with each 8 x 8 block
  // transposed.
  __device__ void transpose_own(int from, int l) {
    for (int i = warp_; i < p_.layer[l].own * kSampleTiles; i += kWarps) {
      const uint4 v = shared_lanes(from)[i * 32 + lane_];
      shared_lanes(p_.transposed)[i * 32 + lane_] = {transpose_8x8(v.x), transpose_8x8(v.y),
                                                     transpose_8x8(v.z), transpose_8x8(v.w)};
    }
    __syncthreads();
  }

  __device__ void update_first(int t) {
    transpose_own(p_.own_dy, 0);
    for (int first = 0; first < p_.layer[0].own; first += kParts) {
      const Pass pass = rows(0, first, x(t), kMasters);
      prefetch(pass);
      stream(pass, [&](int tile, int stage) {
        uint32_t xt[kSampleTiles][4];
        transposed(acts(stage), xt);
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          if (i >= pass.parts) continue;
          Weights w = weights(stage, i);
          uint32_t d[kSampleTiles][4];
#pragma unroll
          for (int s = 0; s < kSampleTiles; ++s) {
            set(d[s], shared_lanes(p_.transposed)[((first + i) * kSampleTiles + s) * 32 + lane_]);
          }
          update(w, d, xt);
          put(pass, tile, i, w);
        }
      });
    }
    __threadfence();  // the next forward pass copies what was just written, asynchronously
    __syncthreads();
  }
};

}  // namespace ridgeline::cuda::mlp
