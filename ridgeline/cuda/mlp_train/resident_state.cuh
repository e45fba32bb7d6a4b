#pragma once

// What a block of the resident trainer holds: its places in memory, the tables of its stages and
// jobs, and how weights come and go.

#include <cstdint>

#include "ridgeline/cuda/mlp_train/exchange.cuh"
#include "ridgeline/cuda/mlp_train/stages.h"

namespace ridgeline::cuda::mlp {

template <typename T, int kSampleTiles, bool kMasters, typename Exchange>
class ResidentState {
 protected:
  __device__ ResidentState(const ResidentParams& params, char* shared, Exchange& exchange)
      : p_(params.plan),
        args_(params.args),
        shared_(shared),
        private_(params.private_part + blockIdx.x * params.plan.private_bytes),
        ex_(exchange),
        block_(blockIdx.x),
        warp_(threadIdx.x >> 5),
        lane_(threadIdx.x & 31),
        share_(1.0 / params.args.shape.batch) {}

  using Tile = WeightTile<T, kMasters>;
  using Slot = typename Tile::Slot;
  using From = typename Exchange::From;
  static constexpr int kWarpCount = Exchange::kWarpCount;
  static constexpr int kThreads = 32 * kWarpCount;
  static constexpr int kUpdateWarps = Exchange::kUpdateWarps;
  static constexpr int kStride = sample_stride(kSampleTiles);
  // Outputs (of 8) summed in one pass over the input; bounded by the accumulators.
  static constexpr int kTilesAPass = kSampleTiles == 1 ? 4 : kSampleTiles <= 4 ? 2 : 1;
  // Unit tiles in flight. From L2, of 32 samples: all of a warp's at 1024 wide.
  static constexpr int kAhead = 8 / kSampleTiles;
  static constexpr int kAheadInUpdate = 8 / kSampleTiles;

  // w = keep * w - step * (gradient summed over the batch)
  struct Rate {
    float keep, step;
  };

  __device__ char* place(Place at) const { return at >= 0 ? shared_ + at : private_ + ~at; }
  __device__ float* floats(int at) const { return reinterpret_cast<float*>(shared_ + at); }
  __device__ T* halves(int at) const { return reinterpret_cast<T*>(shared_ + at); }
  __device__ Slot* slots(Place at) const { return reinterpret_cast<Slot*>(place(at)); }
  __device__ void compute_barrier() { named_barrier(kComputeBarrier, kThreads); }

  __device__ Rate rate_of(int t) const {
    const double lr = __ldg(args_.lr + t);
    return {float(1.0 - lr * args_.weight_decay), float(lr * share_)};
  }
  __device__ void step_barrier() {
    named_barrier(kStepBarrier, 32 * (kWarpCount + kUpdateWarps + Exchange::kGatherWarps));
  }

  __device__ Job job_at(int t, int i) const {
    return reinterpret_cast<const Job*>(shared_ + p_.jobs)[(t & (kTables - 1)) * 2 * p_.hidden + i];
  }
  __device__ Stage stage_at(int t, int i) const {
    return reinterpret_cast<const Stage*>(shared_ +
                                          p_.stages)[(t & (kTables - 1)) * 2 * p_.hidden + i];
  }

  // The tables of steps t = 0..3 (mod 4): buffers alternate with that period at most.
  __device__ void make_tables() {
    Stage* stages = reinterpret_cast<Stage*>(shared_ + p_.stages);
    Job* jobs = reinterpret_cast<Job*>(shared_ + p_.jobs);
    for (int i = threadIdx.x; i < kTables * 2 * p_.hidden; i += kThreads) {
      stages[i] = make_stage(i / (2 * p_.hidden), i % (2 * p_.hidden));
    }
    for (int i = threadIdx.x; i < kTables * 2 * p_.hidden; i += kThreads) {
      jobs[i] = make_job(i / (2 * p_.hidden), i % (2 * p_.hidden));
    }
  }

  __device__ int own_y(int l, int t) const {
    const auto& layer = p_.layer[l];
    return layer.own_y + (l == 0 && (t & 1) ? 16 * layer.own_tiles * kStride : 0);
  }

  __device__ Stage make_stage(int t, int i) const {
    const int hidden = p_.hidden;
    Stage stage{};
    if (i < hidden) {
      const auto& layer = p_.layer[i];
      stage.kind = StageKind::forward;
      stage.weights = place(layer.rows);
      stage.n_tiles = layer.own_tiles, stage.k_tiles = layer.in_tiles;
      stage.v = i == 0 ? ex_.x(t) : ex_.y(i - 1, t);
      stage.bias = layer.bias, stage.own_y = own_y(i, t);
      stage.left = layer.out - block_ * 8 * layer.own_tiles;
      ex_.will_wait(stage, i == 0 ? Exchanged::x : Exchanged::y, i == 0 ? 0 : i - 1, t);
      ex_.will_send(stage, Exchanged::y, i, t);
    } else if (i == hidden) {
      stage.kind = StageKind::top;
      stage.weights = place(p_.top);
      stage.n_tiles = p_.class_tiles, stage.k_tiles = p_.layer[hidden - 1].out_tiles;
      stage.v = ex_.y(hidden - 1, t);
      stage.bias = p_.top_bias;
      ex_.will_wait(stage, Exchanged::y, hidden - 1, t);
    } else {
      const int l = 2 * hidden - i;
      const auto& layer = p_.layer[l];
      stage.kind = StageKind::backward;
      stage.weights = place(layer.columns);
      stage.n_tiles = p_.layer[l - 1].own_tiles, stage.k_tiles = layer.out_tiles;
      const bool stashed = l == hidden - 1;
      stage.v = stashed ? reinterpret_cast<const uint4*>(place(p_.stash)) : ex_.dy(l);
      stage.own_y = own_y(l - 1, t), stage.own_dy = p_.layer[l - 1].own_dy;
      if (!stashed) ex_.will_wait(stage, Exchanged::dy, l, t);
      if (l > 1) ex_.will_send(stage, Exchanged::dy, l - 1, t);
    }
    return stage;
  }

  // Jobs in the order in which they can be done: the last layer, rows and columns of layers
  // H-1..1, rows of layer 0.
  __device__ Job make_job(int t, int i) const {
    Job job{};
    if (i == 0) {
      const auto& below = p_.layer[p_.hidden - 1];
      job.weights = place(p_.top);
      job.n_tiles = p_.class_tiles, job.k_tiles = below.out_tiles;
      job.v = ex_.y(p_.hidden - 1, t);
      job.own = halves(p_.dlogits_t);
      job.bias = floats(p_.top_bias);
      job.ready = 1;
      return job;
    }
    const int l = p_.hidden - 1 - (i - 1) / 2;
    const auto& layer = p_.layer[l];
    job.ready = p_.hidden - l;
    if (i & 1) {
      job.weights = place(layer.rows);
      job.n_tiles = layer.own_tiles, job.k_tiles = layer.in_tiles;
      job.v = l == 0 ? ex_.x(t) : ex_.y(l - 1, t);
      job.own = halves(layer.own_dy);
      job.bias = floats(layer.bias);
    } else {
      job.weights = place(layer.columns);
      job.n_tiles = p_.layer[l - 1].own_tiles, job.k_tiles = layer.out_tiles;
      job.v = l == p_.hidden - 1 ? reinterpret_cast<const uint4*>(place(p_.stash)) : ex_.dy(l);
      job.own = halves(own_y(l - 1, t));
    }
    return job;
  }

  template <bool kStore>
  __device__ void move_weights() {
    for (int l = 0; l < p_.hidden; ++l) {
      const auto& layer = p_.layer[l];
      const int own = 8 * layer.own_tiles * block_;
      move_block<kStore>(l, slots(layer.rows), layer.own_tiles, layer.in_tiles, own, layer.out,
                         layer.in, layer.in, 1);
      move_bias<kStore>(l, floats(layer.bias), 8 * layer.own_tiles, own, layer.out);
      if (l > 0 && !kStore) {
        move_block<kStore>(l, slots(layer.columns), p_.layer[l - 1].own_tiles, layer.out_tiles,
                           8 * p_.layer[l - 1].own_tiles * block_, layer.in, layer.out, 1,
                           layer.in);
      }
    }
    if (kStore && block_ != 0) return;
    const int width = p_.layer[p_.hidden - 1].out;
    move_block<kStore>(p_.hidden, slots(p_.top), p_.class_tiles, p_.layer[p_.hidden - 1].out_tiles,
                       0, p_.classes, width, width, 1);
    move_bias<kStore>(p_.hidden, floats(p_.top_bias), 8 * p_.class_tiles, 0, p_.classes);
  }

  // Slot i of output n and inputs k..: w[n * n_stride + k * k_stride], 0 beyond n_end and k_end.
  template <bool kStore>
  __device__ void move_block(int l, Slot* block, int n_tiles, int k_tiles, int n_first, int n_end,
                             int k_end, int64_t n_stride, int64_t k_stride) {
    T* w = static_cast<T*>(args_.w[l]);
    float* master = args_.master_w[l];
#pragma unroll 1
    for (int tile = warp_; tile < k_tiles; tile += kWarpCount) {
#pragma unroll 1
      for (int n = 0; n < n_tiles; ++n) {
        Slot& at = block[(n * k_tiles + tile) * 32 + lane_];
        Slot slot{};
        if (kStore) slot = at;
        const int out = n_first + 8 * n + (lane_ >> 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int in = tile * 16 + (lane_ & 3) * 4 + i;
          if (out >= n_end || in >= k_end) continue;
          const int64_t from = out * n_stride + in * k_stride;
          if constexpr (kStore) {
            store_weight<T, kMasters>(slot, i, w, master, from);
          } else {
            load_weight<T, kMasters>(slot, i, w, master, from);
          }
        }
        if (!kStore) at = slot;
      }
    }
  }

  template <bool kStore>
  __device__ void move_bias(int l, float* bias, int count, int first, int end) {
    T* half = static_cast<T*>(args_.bias[l]);
    if (kStore) compute_barrier();  // the last warp has updated it
    for (int n = threadIdx.x; n < count; n += kThreads) {
      if constexpr (kStore) {
        if (first + n >= end) continue;
        half[first + n] = T(bias[n]);
        if (kMasters) args_.master_bias[l][first + n] = bias[n];
      } else {
        bias[n] = first + n >= end ? 0.0f
                  : kMasters       ? args_.master_bias[l][first + n]
                                   : float(half[first + n]);
      }
    }
  }

  const ResidentPlan& p_;
  const MlpTrainArgs& args_;
  char* shared_;
  char* private_;
  Exchange& ex_;
  int block_, warp_, lane_;
  double share_;  // of one sample in the mean
};

}  // namespace ridgeline::cuda::mlp
