#pragma once

// The step of cluster_replicated.h, for one block: the first layer, and the chain of the layers
// above it.

#include "ridgeline/cuda/mlp_train/cluster_replicated_updates.cuh"
#include "ridgeline/cuda/mlp_train/fragments.cuh"

namespace ridgeline::cuda::mlp {

template <typename T, int kHidden, bool kRelu, bool kDecays, bool kMasters>
class ClusterReplicatedTrainer : ClusterReplicatedUpdates<T, kHidden, kDecays, kMasters> {
 public:
  __device__ ClusterReplicatedTrainer(const ClusterReplicatedParams& params, char* shared)
      : Base(params, shared) {}

  __device__ void run() {
    load_weights();
    if (threadIdx.x == 0) {
      for (int i = 0; i < 3; ++i) {
        first_barrier(i).init();
        first_barrier(i).expect(Map::kValueBytes);
      }
    }
    load_inputs(0);
    for (int t = threadIdx.x; t < args_.steps; t += kThreads) rates()[t] = p_.rates[t];
    for (int i = threadIdx.x; i < args_.steps * kReplicatedSamples; i += kThreads) {
      labels(0)[i] = p_.labels[i];
    }
    fence_async_proxy();
    cluster_sync();
#pragma unroll 1
    for (int t = 0; t < args_.steps; ++t) {
      // Addresses derived from these are recomputed where they are used: kept across the loop, they
      // would take more registers than there are.
      asm volatile("" : "+r"(lane_), "+r"(g_), "+r"(t_));
      multiply_first();
      all_barrier();
      if (warp_ < kChainWarps) {
        chain(t);
      } else {
        follow(t);
      }
      all_barrier();
      update_first(rates()[t]);
      if (++ring_ == 3) ring_ = 0, phase_ ^= 1;
    }
    if (warp_ >= kChainWarps) {
#pragma unroll 1
      for (int l = 1; l < kHidden; ++l) update_layer(l, args_.steps - 1);
    }
    __syncthreads();
    store_weights();
    cluster_sync();  // no block exits while others may still send to it
  }

 private:
  using Base = ClusterReplicatedUpdates<T, kHidden, kDecays, kMasters>;
  using Map = typename Base::Map;
  using Tile = typename Base::Tile;
  using Base::all_barrier;
  using Base::args_;
  using Base::bias;
  using Base::block_;
  using Base::chain_barrier;
  using Base::dz;
  using Base::first;
  using Base::first_barrier;
  using Base::follow;
  using Base::g_;
  using Base::generic_;
  using Base::kChainWarps;
  using Base::kDlogitsBarrier;
  using Base::kept;
  using Base::kLogitPitch;
  using Base::kThreads;
  using Base::kWeightsBarrier;
  using Base::labels;
  using Base::lane_;
  using Base::load_inputs;
  using Base::load_transposed;
  using Base::load_weights;
  using Base::matrix_at;
  using Base::own_bias;
  using Base::p_;
  using Base::phase_;
  using Base::rates;
  using Base::ring_;
  using Base::shared_;
  using Base::store_weights;
  using Base::stored;
  using Base::sum_of;
  using Base::t_;
  using Base::top;
  using Base::top_bias;
  using Base::update_layer;
  using Base::value_at;
  using Base::w_;
  using Base::warp_;
  using Base::warp_units;
  using Base::weight_at;
  using Base::weights;
  using Base::x_;
  using Base::xt_;
  using Base::y;
  // This warp's part of the sums of y(0), for all samples and the block's own units; 0 without
  // inputs.
  __device__ void multiply_first() {
    float sum[2][2][4] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint2 w = Tile::operand(w_[j]);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const uint4& x = x_[2 * j + m];
        mma_m16n8k16<T>(sum[j & 1][m], {x.x, x.y, x.z, x.w}, w.x, w.y);
      }
    }
    const uint32_t to = shared_ + Map::kSums + warp_ * Map::kSumBytes + 2 * t_ * Map::kSumPitch;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        store_shared_float(to + (i & 1) * Map::kSumPitch + (16 * m + g_ + 8 * (i >> 1)) * 4,
                           sum[0][m][i] + sum[1][m][i]);
      }
    }
  }

  // Warp w of the chain finishes the block's own unit w, one sample per lane, and sends it to all
  // blocks.
  __device__ void send_first() {
    const uint32_t from = shared_ + Map::kSums + warp_ * Map::kSumPitch + lane_ * 4;
    float sum[4] = {};
#pragma unroll
    for (int w = 0; w < kReplicatedWarps; ++w) {
      sum[w & 3] += load_shared_float(from + w * Map::kSumBytes);
    }
    const int unit = 8 * block_ + warp_;
    float v = activated((sum[0] + sum[1]) + (sum[2] + sum[3]) + own_bias()[warp_]);
    if (unit >= args_.shape.sizes[1]) v = 0.0f;
    const uint32_t pair = Pair<T>::pack(v, __shfl_down_sync(~0u, v, 1));
    const int lead = lane_ & 24;
    const uint4 chunk = {__shfl_sync(~0u, pair, lead), __shfl_sync(~0u, pair, lead + 2),
                         __shfl_sync(~0u, pair, lead + 4), __shfl_sync(~0u, pair, lead + 6)};
    const uint32_t to = first(ring_) + value_at(unit, lane_ >> 3);
    const uint32_t on = shared_address(&first_barrier(ring_));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t peer = (lane_ & 7) + 8 * i;
      store_async_16(cluster_address(to, peer), chunk, cluster_address(on, peer));
    }
  }

  // Updates the block's own rows of W(0); their bias is updated by a warp that has few inputs or
  // none.
  __device__ void update_first(float2 rate) {
    const uint32_t own = shared_ + Map::kOwnDz;
    if (warp_ < p_.slices) {
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const uint32_t at = own + g_ * Map::kOwnPitch + (16 * m + 2 * t_) * 2;
        a[m][0] = load_shared_32(at), a[m][2] = load_shared_32(at + 16);
        a[m][1] = a[m][3] = 0;  // 8 units, not 16
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float low[4] = {}, high[4] = {};
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const uint4& x = xt_[2 * j + m];
          mma_m16n8k16<T>(low, a[m], x.x, x.y);
          mma_m16n8k16<T>(high, a[m], x.z, x.w);
        }
        Tile::update(w_[j], {low[0], low[1], high[0], high[1]}, kDecays ? rate.x : 1.0f, rate.y);
      }
    }
    if (warp_ == kReplicatedWarps - 1) {
      float sum = sum_of(load_shared_128(own + g_ * Map::kOwnPitch + t_ * 16));
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if (t_ == 0) own_bias()[g_] = stored(fmaf(-rate.y, sum, own_bias()[g_]));
    }
  }

  __device__ float activated(float z) const {
    if (kRelu) return z < 0.0f ? 0.0f : z;  // NaN stays NaN
    return args_.shape.activation == ActivationFn::tanh ? tanhf(z)
                                                        : __fdividef(1.0f, 1.0f + __expf(-z));
  }
  // Two sums times the derivative at y, as pairs.
  __device__ uint32_t gradient(float d0, float d1, uint32_t y) const {
    if (kRelu) return Pair<T>::pack(d0, d1) & Pair<T>::positive(y);
    const float2 v = Pair<T>::unpack(y);
    const bool tanh = args_.shape.activation == ActivationFn::tanh;
    return Pair<T>::pack(d0 * (tanh ? 1.0f - v.x * v.x : v.x * (1.0f - v.x)),
                         d1 * (tanh ? 1.0f - v.y * v.y : v.y * (1.0f - v.y)));
  }

  __device__ void chain(int t) {
    send_first();
    load_transposed(t);
    named_barrier(kWeightsBarrier + 1, kThreads);
    first_barrier(ring_).wait(phase_);
    if (threadIdx.x == 0) first_barrier(ring_).expect(Map::kValueBytes);
    fence_async_proxy();
    uint32_t values[2][4];  // this thread's values of the current layer
#pragma unroll 1
    for (int l = 1; l < kHidden; ++l) {
      if (l > 1) named_barrier(kWeightsBarrier + l, kThreads);
      forward(l, l == 1 ? first(ring_) : y(l - 1, t), y(l, t), values);
    }
    loss(t);
    backward_top(t, values);
#pragma unroll 1
    for (int l = kHidden - 1; l > 1; --l) backward(l, y(l - 1, t), values);
    // Placed after the last fence of the step, because a fence waits for loads in flight.
    load_inputs(min(t + 1, args_.steps - 1));
    if (warp_ < 4) backward_own();
  }

  // sum[units x samples] = W v, or W^T v, for the 64 units of this warpgroup.
  template <bool kTransposed>
  __device__ void multiply(uint32_t w, uint32_t v, float (&sum)[16]) const {
    const int group = warp_ >> 2 & 1;
    const uint64_t a =
        wgmma_descriptor(w + group * (kTransposed ? Map::kPanelBytes : 64 * 128), 16, 1024, 128);
    const uint64_t b = wgmma_descriptor(v, 16, 512, 64);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int at = kTransposed ? k * 16 * 128 : (k >> 2) * Map::kPanelBytes + (k & 3) * 32;
      wgmma<T, kTransposed, true>(sum, a + (at >> 4), b + (k * 16 * 64 >> 4), k > 0);
    }
    wgmma_commit();
  }

  __device__ void forward(int l, uint32_t below, uint32_t to, uint32_t (&values)[2][4]) {
    float sum[16];
    multiply<false>(weights(l), below, sum);
    const int unit = warp_units() + g_;
    const float b[2] = {bias(l)[unit], bias(l)[unit + 8]};
    const int width = args_.shape.sizes[l + 1];
    wgmma_wait<0>();
    wgmma_keep(sum);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float z0 = sum[2 * i] + b[i & 1], z1 = sum[2 * i + 1] + b[i & 1];
      const uint32_t v = Pair<T>::pack(activated(z0), activated(z1));
      // Past the last unit this is f(0), which is 0 except for sigmoid.
      values[i >> 2][i & 3] = kRelu || unit + 8 * (i & 1) < width ? v : 0;
    }
    put(to, values);
    chain_barrier();
  }

  // Stores this warp's 16 units x 32 samples for products to read.
  __device__ void put(uint32_t to, const uint32_t (&values)[2][4]) const {
    const uint32_t at = to + matrix_at();
    store_matrices(at, values[0]);
    store_matrices(at ^ 32, values[1]);
    fence_async_proxy();
  }

  // Computes the logits and their gradient. First, warp 2q + m multiplies 16 samples by a quarter
  // of the units; then each warp has 4 samples, and a lane two classes of one.
  __device__ void loss(int t) {
    // Matrices 0..3: units 0..7 with samples 0..7, with samples 8..15, then units 8..15 likewise;
    // classes 0..7 with units 0..7, with units 8..15, then classes 8..15 likewise.
    const int row = lane_ & 7, odd = lane_ >> 3 & 1, high = lane_ >> 4;
    const int m = warp_ & 1, quarter = warp_ >> 1;
    const uint32_t values =
        y(kHidden - 1, t) + quarter * 32 * 64 + value_at(8 * high + row, 2 * m + odd);
    const uint32_t w = top(t) + (8 * high + row) * Map::kTopPitch + odd * 16 + quarter * 64;
    float sum[2][4] = {};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      uint32_t a[4], b[4];
      load_matrices_transposed(a, values + k * 16 * 64);
      load_matrices(b, w + k * 32);
      mma_m16n8k16<T>(sum[0], a, b[0], b[1]);
      mma_m16n8k16<T>(sum[1], a, b[2], b[3]);
    }
    float* parts = reinterpret_cast<float*>(generic_ + Map::kLogits);
    float* to = parts + (quarter * kReplicatedSamples + 16 * m + g_) * kLogitPitch + 2 * t_;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float* pair = to + (i >> 1) * 8 * kLogitPitch + (i & 1) * 8;
      *reinterpret_cast<float2*>(pair) = {sum[i & 1][(i & 2)], sum[i & 1][(i & 2) + 1]};
    }
    chain_barrier();
    const int sample = 4 * warp_ + (lane_ >> 3), c = 2 * row, label = labels(t)[sample];
    const int classes = args_.shape.sizes[kHidden + 1];
    float2 z = *reinterpret_cast<const float2*>(top_bias() + c);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 part = *reinterpret_cast<const float2*>(
          parts + (q * kReplicatedSamples + sample) * kLogitPitch + c);
      z.x += part.x, z.y += part.y;
    }
    if (c >= classes) z.x = -INFINITY;
    if (c + 1 >= classes) z.y = -INFINITY;
    float largest = fmaxf(z.x, z.y);
#pragma unroll
    for (int d = 1; d < 8; d *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
    const float2 e = {__expf(z.x - largest), __expf(z.y - largest)};
    float total = e.x + e.y;
#pragma unroll
    for (int d = 1; d < 8; d *= 2) total += __shfl_xor_sync(~0u, total, d);
    const float scale = sample < args_.shape.batch ? __fdividef(1.0f, total) : 0.0f;
    store_shared_32(shared_ + Map::kDlogits + sample * Map::kDlogitsPitch + c * 2,
                    Pair<T>::pack(e.x * scale - (c == label ? 1.0f : 0.0f),
                                  e.y * scale - (c + 1 == label ? 1.0f : 0.0f)));
    if (block_ == kReplicatedBlocks - 1) {  // for report()
      float* own = reinterpret_cast<float*>(generic_ + Map::kReport) + sample * 17 + c;
      own[0] = z.x, own[1] = z.y;
    }
  }

  // dz of the last hidden layer: `values` holds its y on entry, and dz on return.
  __device__ void backward_top(int t, uint32_t (&values)[2][4]) {
    const int row = lane_ & 7, odd = lane_ >> 3 & 1, high = lane_ >> 4;
    uint32_t a[4];
    load_matrices_transposed(
        a, top(t) + (8 * high + row) * Map::kTopPitch + (warp_units() + 8 * odd) * 2);
    named_barrier_arrive(kDlogitsBarrier, kThreads);
    chain_barrier();  // dlogits are complete
    float sum[16];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const uint32_t at = shared_ + Map::kDlogits + (8 * n + g_) * Map::kDlogitsPitch + t_ * 4;
      float part[4] = {};
      mma_m16n8k16<T>(part, a, load_shared_32(at), load_shared_32(at + 16));
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[4 * n + i] = part[i];
    }
    finish_gradient(kHidden - 1, sum, values);
  }

  __device__ void backward(int l, uint32_t below, uint32_t (&values)[2][4]) {
    float sum[16];
    multiply<true>(weights(l), dz(l), sum);
    const uint32_t at = below + matrix_at();
    load_matrices(values[0], at);
    load_matrices(values[1], at ^ 32);
    wgmma_wait<0>();
    wgmma_keep(sum);
    finish_gradient(l - 1, sum, values);
  }

  // dz(l) = sum * f'(y), with y in `values`; signals the followers that it is ready.
  __device__ void finish_gradient(int l, const float (&sum)[16], uint32_t (&values)[2][4]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      uint32_t& v = values[i >> 2][i & 3];
      v = gradient(sum[2 * i], sum[2 * i + 1], v);
    }
    put(dz(l), values);
    chain_barrier();
  }

  // dz(0) of the block's own units: warp n has samples 8n..8n+7.
  __device__ void backward_own() {
    const int n = warp_, own = 8 * block_;
    const uint32_t w = weights(1) + weight_at(lane_, block_);
    const uint32_t v = dz(1) + value_at(lane_, n);
    float sum[4][4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // 32 units of layer 1
      uint32_t a[4], b[4];
      load_matrices_transposed(a, w + i * 32 * 128);
      load_matrices_transposed(b, v + i * 32 * 64);
      mma_m16n8k16<T>(sum[i], {a[0], 0, a[1], 0}, b[0], b[1]);
      mma_m16n8k16<T>(sum[i], {a[2], 0, a[3], 0}, b[2], b[3]);
    }
    const uint32_t below = load_shared_32(first(ring_) + value_at(own + g_, n) + t_ * 4);
    const float d0 = (sum[0][0] + sum[1][0]) + (sum[2][0] + sum[3][0]);
    const float d1 = (sum[0][1] + sum[1][1]) + (sum[2][1] + sum[3][1]);
    store_shared_32(shared_ + Map::kOwnDz + g_ * Map::kOwnPitch + (8 * n + 2 * t_) * 2,
                    gradient(d0, d1, below));
  }
};

}  // namespace ridgeline::cuda::mlp
