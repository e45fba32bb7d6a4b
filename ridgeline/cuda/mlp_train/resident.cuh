#pragma once

// Training steps with the weights on chip. With hidden layers 0..H-1, a step has 2H stages:
//   forward    y(l) = f(y(l-1) . rows(l)^T + b), then sent to all blocks
//   top        logits, loss, dlogits and dy(H-1), by every block alike: nothing is sent
//   backward   dy(l-1) = dy(l) . columns(l)^T * f', l = H-1..1; sent, but for dy(0)
// In a cluster, two groups of warps share a block: the compute warps go through the stages; the
// update warps follow them, and update a layer as soon as the compute warps are through with it.
// Layer 0, whose gradient comes last and whose weights are needed first, is updated by both. Over
// the grid, where there is more to compute and longer to wait, all warps do both. (us a step with
// and without update warps: cluster, h = 128: 11.5, 13.1; grid, h = 512: 19.6, 19.1; h =
// 1024: 28.1, 26.1.)
//
// A step of a small net is a few thousand instructions a warp at about 8 cycles each, and they are
// its time (measured: 31 % of issue slots used, stalls on fixed latencies). So: what a stage works
// on comes from a table made at the start, each kind of work stands at one place, and nothing is
// done by the compute warps that others can do.

#include <cstdint>

#include "ridgeline/cuda/mlp_train/resident_state.cuh"
#include "ridgeline/cuda/mlp_train/softmax.cuh"

namespace ridgeline::cuda::mlp {

template <typename T, int kSampleTiles, bool kMasters, typename Exchange>
class ResidentTrainer : ResidentState<T, kSampleTiles, kMasters, Exchange> {
 public:
  __device__ ResidentTrainer(const ResidentParams& params, char* shared, Exchange& exchange)
      : Base(params, shared, exchange) {}

  __device__ void run() {
    if (warp_ < kWarpCount) {
      Base::template move_weights<false>();
      make_tables();
    }
    if (Exchange::kPrologue) step_barrier();
    if (warp_ < kWarpCount) {
      ex_.begin();
      run_stages();
    } else if constexpr (kUpdateWarps > 0) {
      run_updates();
    }
    named_barrier(kUpdatedBarrier, 32 * (kWarpCount + kUpdateWarps));
    if (warp_ < kWarpCount) Base::template move_weights<true>();
  }

 private:
  using Base = ResidentState<T, kSampleTiles, kMasters, Exchange>;
  using Tile = typename Base::Tile;
  using Slot = typename Base::Slot;
  using From = typename Base::From;
  using Rate = typename Base::Rate;
  using Base::args_;
  using Base::block_;
  using Base::compute_barrier;
  using Base::ex_;
  using Base::floats;
  using Base::halves;
  using Base::job_at;
  using Base::kAhead;
  using Base::kAheadInUpdate;
  using Base::kStride;
  using Base::kThreads;
  using Base::kTilesAPass;
  using Base::kUpdateWarps;
  using Base::kWarpCount;
  using Base::lane_;
  using Base::make_tables;
  using Base::p_;
  using Base::place;
  using Base::rate_of;
  using Base::shared_;
  using Base::stage_at;
  using Base::step_barrier;
  using Base::warp_;

  __device__ void run_stages() {
    const int stages = 2 * p_.hidden;
#pragma unroll 1
    for (int t = 0; t < args_.steps; ++t) {
      step_barrier();
#pragma unroll 1
      for (int i = 0; i < stages; ++i) {
        compute(stage_at(t, i), i, t);
        if (kUpdateWarps == 0) update_behind(i, t);
      }
      if (kUpdateWarps > 0) {
        named_barrier_arrive(kReadyBarrier + p_.hidden - 1, 32 * (kWarpCount + kUpdateWarps));
      }
      compute_barrier();  // layer 0's gradient is whole
      if (kUpdateWarps == 0 && p_.hidden <= 2) update(job_at(t, 0), rate_of(t), warp_, kWarpCount);
      update(job_at(t, stages - 1), rate_of(t), warp_, kWarpCount + kUpdateWarps);
    }
    if (kUpdateWarps == 0) update_behind(0, args_.steps);
  }

  // Without update warps, jobs are done while slices of other blocks come: the last layer's and
  // layer l's (l > 1) behind the exchange of dy(l - 1), layer 1's behind that of y(0) in the next
  // step.
  __device__ void update_behind(int i, int t) {
    const int hidden = p_.hidden, l = i == 0 ? 1 : 2 * hidden - i;
    if (i == 0 ? t == 0 || hidden == 1 : i <= hidden || l == 1) return;
    const int rows = 1 + 2 * (hidden - 1 - l), of_step = i == 0 ? t - 1 : t;
    const Rate rate = rate_of(of_step);
#pragma unroll 1
    for (int job = l > 1 && l == hidden - 1 ? 0 : rows; job < rows + 2; ++job) {
      update(job_at(of_step, job), rate, warp_, kWarpCount);
    }
  }

  // Event e of a step is that the compute warps have done the product of stage H + 1 + e and all
  // before it, or, the last, everything: then layer H - 1 - e may be updated, and the top with the
  // first.
  __device__ void run_updates() {
    const int warp = warp_ - kWarpCount;
#pragma unroll 1
    for (int t = 0; t < args_.steps; ++t) {
      step_barrier();
      const Rate rate = rate_of(t);
      int seen = 0;
#pragma unroll 1
      for (int i = 0; i < 2 * p_.hidden; ++i) {
        const Job job = job_at(t, i);
        if (seen < job.ready) {
          named_barrier(kReadyBarrier + seen, 32 * (kWarpCount + kUpdateWarps));
          ++seen;
        }
        const bool shared_job = i == 2 * p_.hidden - 1;
        update(job, rate, shared_job ? warp_ : warp,
               shared_job ? kWarpCount + kUpdateWarps : kUpdateWarps);
      }
    }
  }

  __device__ void compute(const Stage& stage, int i, int t) {
    ex_.wait(stage, t);
    float* sums = floats(p_.reduce + (i & 1) * p_.reduce_stride);
    multiply(stage, sums);
    if (kUpdateWarps > 0 && i > p_.hidden) {
      named_barrier_arrive(kReadyBarrier + i - p_.hidden - 1, 32 * (kWarpCount + kUpdateWarps));
    }
    compute_barrier();
    reduce(stage, sums);
    if (stage.kind == StageKind::top) {
      compute_barrier();
      softmax(t);
      compute_barrier();
      backward_top(stage);
    }
  }

  // Sums over this warp's unit tiles, to sums[warp][n tile][sample tile][lane] as float4.
  __device__ void multiply(const Stage& stage, float* sums) {
    const int n_tiles = stage.n_tiles, k_tiles = stage.k_tiles;
    const Slot* w = static_cast<const Slot*>(stage.weights) + lane_;
    float4* out = reinterpret_cast<float4*>(sums) + warp_ * n_tiles * kSampleTiles * 32 + lane_;
#pragma unroll 1
    for (int first = 0; first < n_tiles; first += kTilesAPass) {
      const int count = min(kTilesAPass, n_tiles - first);
      float sum[kTilesAPass][kSampleTiles][4] = {};
      for_each_tile<kSampleTiles, From, kAhead>(
          stage.v, k_tiles, warp_, kWarpCount, lane_,
          [&](int tile, const Fragment<kSampleTiles>& a) {
            if (From::kFar && stage.kind == StageKind::top) put_stash(tile, a.r);
            const Slot* at = w + (first * k_tiles + tile) * 32;
#pragma unroll
            for (int n = 0; n < kTilesAPass; ++n) {
              if (n >= count) break;
              const uint2 b = Tile::operand(at[n * k_tiles * 32]);
#pragma unroll
              for (int s = 0; s < kSampleTiles; ++s) mma_m16n8k16<T>(sum[n][s], a.r[s], b.x, b.y);
            }
          });
#pragma unroll
      for (int n = 0; n < kTilesAPass; ++n) {
        if (n >= count) break;
#pragma unroll
        for (int s = 0; s < kSampleTiles; ++s) {
          out[((first + n) * kSampleTiles + s) * 32] = {sum[n][s][0], sum[n][s][1], sum[n][s][2],
                                                        sum[n][s][3]};
        }
      }
    }
  }

  // Adds up the warps' sums and finishes them: y = f(sum + bias), a logit, or dy = sum * f'. A
  // thread has two neighbouring outputs of one sample, four threads a slot of activations, which
  // they send.
  __device__ void reduce(const Stage& stage, const float* sums) {
    const int count = stage.n_tiles * kSampleTiles * 64;
    const float2* partial = reinterpret_cast<const float2*>(sums);
    const MlpActivation f = args_.shape.activation;
#pragma unroll 1
    for (int e = threadIdx.x; e < count; e += kThreads) {
      float2 sum = {0.0f, 0.0f};
#pragma unroll
      for (int w = 0; w < kWarpCount; ++w) {
        const float2 v = partial[w * count + e];
        sum.x += v.x, sum.y += v.y;
      }
      const int lane = (e >> 1) & 31, s = (e >> 6) % kSampleTiles;
      const int n = (e >> 6) / kSampleTiles * 8 + 2 * (lane & 3);
      const int sample = 16 * s + (lane >> 2) + 8 * (e & 1);
      if (stage.kind == StageKind::top) {
        const float2 bias = *reinterpret_cast<const float2*>(floats(stage.bias) + n);
        *reinterpret_cast<float2*>(floats(p_.logits) + sample * 8 * stage.n_tiles + n) = {
            sum.x + bias.x, sum.y + bias.y};
        continue;
      }
      T* y = halves(stage.own_y) + n * kStride + sample;
      uint32_t pair;
      if (stage.kind == StageKind::forward) {
        const float2 bias = *reinterpret_cast<const float2*>(floats(stage.bias) + n);
        pair = Pair<T>::pack(n < stage.left ? activate(f, sum.x + bias.x) : 0.0f,
                             n + 1 < stage.left ? activate(f, sum.y + bias.y) : 0.0f);
      } else {
        const uint32_t below = reinterpret_cast<const uint16_t&>(y[0]) |
                               uint32_t{reinterpret_cast<const uint16_t&>(y[kStride])} << 16;
        pair = times_derivative<T>(f, sum.x, sum.y, below);
        y = halves(stage.own_dy) + n * kStride + sample;
      }
      y[0] = reinterpret_cast<const T*>(&pair)[0];
      y[kStride] = reinterpret_cast<const T*>(&pair)[1];
      ex_.send(stage, e, n >> 2, s, lane >> 2, pair);
    }
    ex_.sent(stage);
  }

  // Eight lanes a sample.
  __device__ void softmax(int t) {
    const int width = 8 * p_.class_tiles;
    const int* labels = reinterpret_cast<const int*>(shared_ + p_.labels) +
                        (t & (kLabelRing - 1)) * 16 * kSampleTiles;
#pragma unroll 1
    for (int b = threadIdx.x >> 3; b < 16 * kSampleTiles; b += kThreads / 8) {
      const bool live = b < args_.shape.batch;
      softmax_xent_row<T, 8>(floats(p_.logits) + b * width, p_.classes, width, p_.class_stride - 8,
                             live ? labels[b] : -1, live, lane_ & 7,
                             halves(p_.dlogits) + b * p_.class_stride, halves(p_.dlogits_t) + b,
                             kStride, floats(p_.sample_loss) + b,
                             reinterpret_cast<int*>(shared_ + p_.sample_correct) + b);
    }
    if (block_ == p_.blocks - 1) {
      compute_barrier();
      if (warp_ == kWarpCount - 1) {
        report_batch<kSampleTiles>(args_, t, floats(p_.sample_loss),
                                   reinterpret_cast<const int*>(shared_ + p_.sample_correct),
                                   lane_);
      }
    }
  }

  __device__ uint4* stash() const { return reinterpret_cast<uint4*>(place(p_.stash)) + lane_; }
  __device__ void put_stash(int tile, const uint32_t (&r)[kSampleTiles][4]) const {
#pragma unroll
    for (int s = 0; s < kSampleTiles; ++s) {
      stash()[(tile * kSampleTiles + s) * 32] = {r[s][0], r[s][1], r[s][2], r[s][3]};
    }
  }

  // dy of the last hidden layer, tile by tile, to the stash (where y is, if it came from afar); and
  // the block's own units of it.
  __device__ void backward_top(const Stage& stage) {
    const auto& layer = p_.layer[p_.hidden - 1];
    const int class_pairs = (p_.class_tiles + 1) / 2, dwidth = p_.class_stride;
    const Slot* top = static_cast<const Slot*>(stage.weights) + lane_;
    const uint32_t* dlogits = reinterpret_cast<const uint32_t*>(shared_ + p_.dlogits) +
                              (lane_ >> 2) * dwidth / 2 + (lane_ & 3);
    const int own_first = block_ * 8 * layer.own_tiles, own_count = 8 * layer.own_tiles;
    const MlpActivation f = args_.shape.activation;
    const uint4* from = From::kFar ? stash() - lane_ : stage.v;
    for_each_tile<kSampleTiles, FromShared, 2>(
        from, stage.k_tiles, warp_, kWarpCount, lane_,
        [&](int tile, const Fragment<kSampleTiles>& y) {
          float sum[kSampleTiles][2][4] = {};
#pragma unroll 1
          for (int c = 0; c < class_pairs; ++c) {
            const uint2 first = Tile::operand(top[(2 * c * stage.k_tiles + tile) * 32]);
            uint2 second = {0, 0};
            if (2 * c + 1 < p_.class_tiles) {
              second = Tile::operand(top[((2 * c + 1) * stage.k_tiles + tile) * 32]);
            }
            const uint32_t b[4] = {transpose_8x8(first.x), transpose_8x8(second.x),
                                   transpose_8x8(first.y), transpose_8x8(second.y)};
#pragma unroll
            for (int s = 0; s < kSampleTiles; ++s) {
              const uint32_t* row = dlogits + (16 * s * dwidth + 16 * c) / 2;
              const uint32_t a[4] = {row[0], row[4 * dwidth], row[4], row[4 * dwidth + 4]};
              mma_m16n8k16<T>(sum[s][0], a, b[0], b[1]);
              mma_m16n8k16<T>(sum[s][1], a, b[2], b[3]);
            }
          }
          uint32_t d[kSampleTiles][4];
          if (f == MlpActivation::relu) {
#pragma unroll
            for (int i = 0; i < 4 * kSampleTiles; ++i) {
              const int s = i / 4, r = i % 4;
              const float* v = &sum[s][r >> 1][2 * (r & 1)];
              d[s][r] = Pair<T>::pack(v[0], v[1]) & Pair<T>::positive(y.r[s][r]);
            }
          } else {
#pragma unroll
            for (int i = 0; i < 4 * kSampleTiles; ++i) {
              const int s = i / 4, r = i % 4;
              const float* v = &sum[s][r >> 1][2 * (r & 1)];
              d[s][r] = times_derivative_smooth<T>(f, v[0], v[1], y.r[s][r]);
            }
          }
          put_stash(tile, d);
          if (tile * 16 + 16 > own_first && tile * 16 < own_first + own_count) {
            keep_own(tile, halves(layer.own_dy), own_first, own_count);
          }
        });
  }

  // The block's own units of a tile of the stash, as own[unit][sample].
  __device__ void keep_own(int tile, T* own, int own_first, int own_count) const {
    const int unit = tile * 16 + (lane_ & 3) * 4 - own_first;
    if (unit < 0 || unit >= own_count) return;
#pragma unroll 1
    for (int i = 0; i < 4 * kSampleTiles; ++i) {
      const uint4* slot = stash() + (tile * kSampleTiles + i / 4) * 32;
      const T* pair = reinterpret_cast<const T*>(slot) + (i & 3) * 2;
      T* at = own + (unit + (i & 2)) * kStride + (i / 4) * 16 + (lane_ >> 2) + 8 * (i & 1);
      at[0] = pair[0];
      at[kStride] = pair[1];
    }
  }

  // w[n][k] = keep * w[n][k] - step * sum over samples of own[n][sample] * v[sample][k]; and the
  // bias, by the last warp: the first ones have the longer lists of tiles. The caller is `warp` of
  // `warps`.
  __device__ void update(const Job& job, Rate rate, int warp, int warps) {
#pragma unroll 1
    for (int n = 0; n < job.n_tiles; n += 2) {
      if (n + 1 < job.n_tiles) {
        update_tiles<true>(job, n, rate, warp, warps);
      } else {
        update_tiles<false>(job, n, rate, warp, warps);
      }
    }
    if (job.bias && warp == warps - 1) {
#pragma unroll 1
      for (int n = lane_; n < 8 * job.n_tiles; n += 32) update_bias(job, n, rate.step);
    }
  }

  // Outputs 8n..8n+7, and the next 8 where kBoth.
  template <bool kBoth>
  __device__ void update_tiles(const Job& job, int n, Rate rate, int warp, int warps) {
    const uint32_t* rows = reinterpret_cast<const uint32_t*>(static_cast<const T*>(job.own) +
                                                             (8 * n + (lane_ >> 2)) * kStride) +
                           (lane_ & 3);
    uint32_t own[kSampleTiles][4];
#pragma unroll
    for (int s = 0; s < kSampleTiles; ++s) {
      own[s][0] = rows[8 * s], own[s][2] = rows[8 * s + 4];
      own[s][1] = kBoth ? rows[8 * s + 4 * kStride] : 0;
      own[s][3] = kBoth ? rows[8 * s + 4 * kStride + 4] : 0;
    }
    Slot* weights = static_cast<Slot*>(job.weights) + n * job.k_tiles * 32 + lane_;
    const int next = job.k_tiles * 32;
    for_each_tile<kSampleTiles, From, kAheadInUpdate>(
        job.v, job.k_tiles, warp, warps, lane_, [&](int tile, const Fragment<kSampleTiles>& v) {
          Slot* slot = weights + tile * 32;
          Slot first = slot[0], second = kBoth ? slot[next] : Slot{};
          float low[4] = {}, high[4] = {};
#pragma unroll
          for (int s = 0; s < kSampleTiles; ++s) {
            mma_m16n8k16<T>(low, own[s], transpose_8x8(v.r[s][0]), transpose_8x8(v.r[s][1]));
            mma_m16n8k16<T>(high, own[s], transpose_8x8(v.r[s][2]), transpose_8x8(v.r[s][3]));
          }
          Tile::update(first, {low[0], low[1], high[0], high[1]}, rate.keep, rate.step);
          slot[0] = first;
          if constexpr (kBoth) {
            Tile::update(second, {low[2], low[3], high[2], high[3]}, rate.keep, rate.step);
            slot[next] = second;
          }
        });
  }

  __device__ void update_bias(const Job& job, int n, float step) {
    const uint4* row = reinterpret_cast<const uint4*>(static_cast<const T*>(job.own) + n * kStride);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 2 * kSampleTiles; ++i) {  // 0 past the batch
      const uint4 v = row[i];
      const float2 a = Pair<T>::unpack(v.x), b = Pair<T>::unpack(v.y), c = Pair<T>::unpack(v.z),
                   d = Pair<T>::unpack(v.w);
      sum += ((a.x + a.y) + (b.x + b.y)) + ((c.x + c.y) + (d.x + d.y));
    }
    const float next = fmaf(-step, sum, job.bias[n]);
    job.bias[n] = kMasters ? next : float(T(next));
  }
};

}  // namespace ridgeline::cuda::mlp
