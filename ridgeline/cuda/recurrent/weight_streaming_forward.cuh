#pragma once

#include "ridgeline/cuda/device/bulk_copy.cuh"
#include "ridgeline/cuda/recurrent/pass.cuh"
#include "ridgeline/cuda/recurrent/values.cuh"
#include "ridgeline/cuda/recurrent/weight_streaming.h"
#include "ridgeline/cuda/recurrent/weight_streaming_units.cuh"

namespace ridgeline::cuda::recurrent {

// A block has all gates of some units for 32, 64 or 128 samples, which are the rows of its
// products. A warpgroup has 64 of them (with 32 it also multiplies the memory behind them, and the
// results are discarded). The accumulators start with the sums with x, except for those of a GRU's
// last gate, and the gates' functions are applied to them in registers. One warp copies state and
// weights, the weights of the next timestep before its state has arrived; three warps prefetch the
// next timestep's sums with x into L2.
template <typename T, Cell kCell, int kQuads, int kSamples>
class WeightStreamingForwardPass {
 public:
  using Units = StreamUnits<kCell, kQuads>;
  static constexpr int kGates = Units::kGates, kSaved = cell_saved(kCell);
  static constexpr int kTiles = (kSamples + 63) / 64;
  static constexpr int kStateBytes = kSamples * 128, kWeightBytes = Units::kRows * 128;
  static constexpr int kStageBytes = kStateBytes + kWeightBytes;
  static constexpr int kApplyThreads = 128 * kTiles, kPrefetchThreads = 96;

  __device__ WeightStreamingForwardPass(const WeightStreamingForwardParams<T>& p, std::byte* shared)
      : args_(p.args), shape_(p.shape), s_(p.args.sequence) {
    const uint32_t over = smem_address(shared) % 1024;
    stages_ = shared + (over > 0 ? 1024 - over : 0);
    kept_ = stages_ + shape_.stages * kStageBytes;
    biases_ = reinterpret_cast<float4*>(kept_ + shape_.resident() * kWeightBytes);
    full_ = reinterpret_cast<Mbarrier*>(biases_ + Units::kUnits);
    empty_ = full_ + kMostStages;
    begun_ = reinterpret_cast<volatile int*>(empty_ + kMostStages);
    const int group = int(blockIdx.x) / shape_.tiles;
    tile_ = int(blockIdx.x) % shape_.tiles;
    first_unit_ = tile_ * Units::kUnits;
    first_sample_ = args_.first_sample + group * kSamples;
    samples_ = min(kSamples, args_.first_sample + args_.samples - first_sample_);
    rotation_ = tile_ * shape_.blocks_of_k / shape_.tiles;
    flags_ = reinterpret_cast<uint32_t*>(args_.exchange) + group * kStreamFlags;
    slots_ = reinterpret_cast<std::byte*>(args_.exchange) + kStreamFlagBytes +
             int64_t(group) * 2 * shape_.blocks_of_k * kStateBytes;
  }

  // Whether this block has samples: the last of several launches may have fewer groups.
  __device__ bool has_samples() const { return samples_ > 0; }

  __device__ void start() {
    if (threadIdx.x == 0) {
      *begun_ = 0;
      for (int i = 0; i < shape_.stages; ++i) {
        mbarrier_init(&full_[i], 1);
        mbarrier_init(&empty_[i], 4 * kTiles);
      }
      mbarrier_init_fence();
    }
    for (int u = int(threadIdx.x); u < Units::kUnits; u += kBlockThreads) biases_[u] = bias_of(u);
    for (int i = 0; i < shape_.blocks_of_k; ++i) {
      if (!shape_.is_resident(i)) continue;
      const auto* from = reinterpret_cast<const uint4*>(weights_at(i));
      auto* to = reinterpret_cast<uint4*>(kept_at(i));
      for (int w = int(threadIdx.x); w < kWeightBytes / 16; w += kBlockThreads) to[w] = from[w];
    }
    fence_async_proxy();
    __syncthreads();
  }

  // Called by one warp.
  __device__ void copy() const {
    const bool first = threadIdx.x % 32 == 0;
    const int count = shape_.blocks_of_k, lead = min(shape_.stages, count);
    Stage begun, copied;
    for (int step = 0; step < s_.steps; ++step) {
      if (first) {
        for (int i = 0; i < lead; ++i) begin_stage(serpentine_block(step, i), begun);
      }
      if (step > 0) await_state(uint32_t(step));
      if (first) {
        const std::byte* slot = slot_of(step);
        for (int i = 0; i < count; ++i) {
          const int block = serpentine_block(step, i);
          if (i >= lead) begin_stage(block, begun);
          bulk_load(stages_ + copied.index * kStageBytes,
                    slot + int64_t(place_block(block)) * kStateBytes, kStateBytes,
                    &full_[copied.index]);
          copied.advance(shape_.stages);
        }
      }
      __syncwarp();
    }
  }

  // Called by kPrefetchThreads threads: prefetches the sums with x of a timestep while the previous
  // one is multiplied.
  __device__ void prefetch(int thread) const {
    const int bytes = 4 * min(Units::kUnits, hidden() - first_unit_);
    for (int step = 1; step < s_.steps; ++step) {
      while (*begun_ < step) __nanosleep(100);
      for (int i = thread; i < kGates * samples_ && bytes > 0; i += kPrefetchThreads) {
        const int sample = first_sample_ + i / kGates, length = s_.length(sample);
        if (step >= length) continue;
        const float* from = input_row(sample, step, length) + i % kGates * hidden() + first_unit_;
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes)
                     : "memory");
      }
    }
  }

  // Called by a warpgroup.
  __device__ void apply(int group) const {
    Own own;
    begin(group, own);
    Stage stage;
    load_inputs(0, own);
    for (int step = 0; step < s_.steps; ++step) {
      const bool more = step + 1 < s_.steps;
      if (threadIdx.x == 0) *begun_ = step + 1;
      multiply(step, group, stage, own);
      move_on(step, own);
      if (more) {
        hand_over(step, own);
        load_inputs(step + 1, own);
      }
      store(step, own);
    }
    end(own);
  }

 private:
  static constexpr int kHandedOver = 1;  // a named barrier

  using Own = StreamOwn<kCell, kQuads>;

  static __device__ int lane_unit() { return threadIdx.x % 4; }
  __device__ int hidden() const { return s_.hidden; }
  // Which block of places comes i-th. The order alternates between timesteps, so that a timestep
  // begins with the blocks that the previous one ended with, whose weights are still in L2.
  __device__ int serpentine_block(int step, int i) const {
    return step % 2 == 0 ? i : shape_.blocks_of_k - 1 - i;
  }
  __device__ std::byte* kept_at(int i) const {
    return kept_ + __popcll(shape_.residents & ((uint64_t(1) << i) - 1)) * kWeightBytes;
  }
  // The index of the i-th block of places. Each thread block rotates the order differently, so that
  // not all of them read the same memory at once.
  __device__ int place_block(int i) const {
    const int at = i + rotation_;
    return at < shape_.blocks_of_k ? at : at - shape_.blocks_of_k;
  }
  // The weights of the i-th block of places.
  __device__ const std::byte* weights_at(int i) const {
    return reinterpret_cast<const std::byte*>(args_.l2_workspace) +
           (int64_t(tile_) * shape_.blocks_of_k + place_block(i)) * kWeightBytes;
  }
  __device__ std::byte* slot_of(int step) const {
    return slots_ + int64_t(step & 1) * shape_.blocks_of_k * kStateBytes;
  }
  __device__ const float* input_row(int sample, int step, int length) const {
    return args_.from_x + s_.row(sample, s_.time(step, length)) * (kGates * hidden());
  }
  // The biases of all gates; for a GRU's last gate those with x and with h are separate.
  __device__ float4 bias_of(int u) const {
    float v[4] = {};
    for (int gate = 0; gate < kGates && first_unit_ + u < hidden(); ++gate) {
      const int at = gate * hidden() + first_unit_ + u;
      v[gate] += args_.b_ih ? args_.b_ih[at] : 0.0f;
      v[kCell == Cell::gru && gate == 2 ? 3 : gate] += args_.b_hh ? args_.b_hh[at] : 0.0f;
    }
    return {v[0], v[1], v[2], v[3]};
  }

  // Waits for a stage to be free and requests its weights.
  __device__ void begin_stage(int i, Stage& stage) const {
    const bool streamed = !shape_.is_resident(i);
    mbarrier_wait(&empty_[stage.index], stage.phase ^ 1);
    Mbarrier* full = &full_[stage.index];
    mbarrier_arrive_expect(full, kStateBytes + (streamed ? kWeightBytes : 0));
    std::byte* to = stages_ + stage.index * kStageBytes + kStateBytes;
    if (streamed) bulk_load(to, weights_at(i), kWeightBytes, full);
    stage.advance(shape_.stages);
  }
  // Waits until all blocks have stored the state that `step` begins with.
  __device__ void await_state(uint32_t step) const {
    for (int i = int(threadIdx.x % 32) * 4; i < shape_.tiles; i += 128) {
      uint4 v;
      do {
        asm volatile("ld.acquire.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(flags_ + i)
                     : "memory");
      } while (min(min(v.x, v.y), min(v.z, v.w)) < step);
    }
    __syncwarp();
    asm volatile("fence.proxy.async.global;" ::: "memory");
  }

  __device__ void begin(int group, Own& own) const {
    const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int sample = own.sample[half] = row + 8 * half;
      own.length[half] = sample < samples_ ? s_.length(first_sample_ + sample) : 0;
      Units::for_runs([&](int p, auto count) {
        constexpr int kCount = decltype(count)::value;
        const int unit = first_unit_ + Units::unit(p, lane_unit());
        const int64_t at = int64_t(first_sample_ + sample) * hidden() + unit;
        const bool there = sample < samples_ && unit < hidden();
        load_run<kCount>(there && args_.h0 != nullptr ? args_.h0 + at : nullptr, &own.h[half][p]);
        if (kCell != Cell::lstm) return;
        load_run<kCount>(there && args_.c0 != nullptr ? args_.c0 + at : nullptr, &own.c[half][p]);
      });
    }
  }
  __device__ void end(const Own& own) const {
    for_each_run(own, [&](int half, int p, auto count, int unit) {
      constexpr int kCount = decltype(count)::value;
      const int64_t at = int64_t(first_sample_ + own.sample[half]) * hidden() + unit;
      if (args_.hT != nullptr) store_run<kCount>(args_.hT + at, &own.h[half][p]);
      if (kCell == Cell::lstm && args_.cT != nullptr)
        store_run<kCount>(args_.cT + at, &own.c[half][p]);
    });
  }

  // Calls f(half, p, count, unit) for the runs of units of the valid samples.
  template <typename F>
  __device__ void for_each_run(const Own& own, const F& f) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (own.sample[half] >= samples_) continue;
      Units::for_runs([&](int p, auto count) {
        const int unit = first_unit_ + Units::unit(p, lane_unit());
        if (unit < hidden()) f(half, p, count, unit);
      });
    }
  }
  // Initialises the sums with those of x.
  __device__ void load_inputs(int step, Own& own) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int length = own.length[half];
      const bool live = step < length;
      const float* from = input_row(first_sample_ + own.sample[half], step, length);
      Units::for_runs([&](int p, auto count) {
        constexpr int kCount = decltype(count)::value;
        const int unit = first_unit_ + Units::unit(p, lane_unit());
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          float v[kCount];
          load_run<kCount>(live && unit < hidden() ? from + gate * hidden() + unit : nullptr, v);
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            own.sum(half, p + e, gate) = 0.0f;
            own.input(half, p + e, gate) = v[e];
          }
        }
      });
    }
  }

  __device__ void multiply(int step, int group, Stage& stage, Own& own) const {
    int used = -1;
    for (int i = 0; i < shape_.blocks_of_k; ++i) {
      mbarrier_wait(&full_[stage.index], stage.phase);
      const std::byte* at = stages_ + stage.index * kStageBytes;
      const int block = serpentine_block(step, i);
      const std::byte* weights = shape_.is_resident(block) ? kept_at(block) : at + kStateBytes;
      const uint64_t a =
          wgmma_descriptor(smem_address(at) + group * kStreamTileBytes, 16, 1024, 128);
      const uint64_t b = wgmma_descriptor(smem_address(weights), 16, 1024, 128);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        stream_wgmma<T>(own.sums, a + uint64_t(2 * k), b + uint64_t(2 * k));
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (used >= 0) release(used);
      used = stage.index;
      stage.advance(shape_.stages);
    }
    wgmma_wait<0>();
    release(used);
    wgmma_keep(own.sums);
  }
  __device__ void release(int index) const {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&empty_[index]);
  }

  // Computes the gates' values and updates h and c.
  __device__ void move_on(int step, Own& own) const {
#pragma unroll
    for (int p = 0; p < kQuads; ++p) {
      const float4 bias = biases_[Units::unit(p, lane_unit())];
      const float b[4] = {bias.x, bias.y, bias.z, bias.w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float gates[4];
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          const bool apart = kCell == Cell::gru && gate == 2;
          const float from_x = b[gate] + (apart ? own.last_x[half][p] : 0.0f);
          const float from_h = own.sum(half, p, gate) + (apart ? b[3] : 0.0f);
          gates[gate] = gate_value<kCell, FastMath>(gate, from_x, from_h, gates);
          if (apart) gates[3] = from_h;
        }
        float c = kCell == Cell::lstm ? own.c[half][p] : 0.0f;
        const float h = float(T(next_state<kCell, FastMath>(gates, own.h[half][p], c)));
        const bool live = step < own.length[half];
        own.h[half][p] = live ? h : own.h[half][p];
        if (kCell == Cell::lstm) own.c[half][p] = live ? c : own.c[half][p];
#pragma unroll
        for (int two = 0; two < 2; ++two) {
          own.gates[half][p][two] = Pair<T>::pack(gates[2 * two], gates[2 * two + 1]);
        }
      }
    }
  }

  __device__ void hand_over(int step, const Own& own) const {
    std::byte* slot = slot_of(step + 1);
    for_each_run(own, [&](int half, int p, auto count, int unit) {
      constexpr int kCount = decltype(count)::value;
      const int sample = own.sample[half], vec8 = unit % kStreamWidth / 8;
      std::byte* to = slot + int64_t(unit / kStreamWidth) * kStateBytes + sample * 128 +
                      ((vec8 ^ sample) & 7) * 16 + unit % 8 * 2;
      store_run<kCount>(reinterpret_cast<T*>(to), &own.h[half][p]);
    });
    asm volatile("fence.proxy.async.global;" ::: "memory");
    named_barrier(kHandedOver, kApplyThreads);
    if (threadIdx.x == 0) {
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flags_ + tile_),
                   "r"(uint32_t(step + 1))
                   : "memory");
    }
  }

  __device__ void store(int step, const Own& own) const {
    const int H = hidden();
    for_each_run(own, [&](int half, int p, auto count, int unit) {
      constexpr int kCount = decltype(count)::value;
      const int length = own.length[half];
      const bool live = step < length;
      const int64_t place = s_.place(first_sample_ + own.sample[half], s_.time(step, length));
      const auto put = [&](T* to, const auto& value) {
        Values<T, kCount> v;
#pragma unroll
        for (int e = 0; e < kCount; ++e) v.v[e] = live ? value(p + e) : T(0.0f);
        *reinterpret_cast<Values<T, kCount>*>(to + unit) = v;
      };
      put(args_.y + place * H, [&](int q) { return T(own.h[half][q]); });
      if (args_.reserve == nullptr) return;
      T* reserve = args_.reserve + place * (kSaved * H);
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) {
        put(reserve + gate * H, [&](int q) {
          const uint32_t two = own.gates[half][q][gate / 2];
          const auto bits = uint16_t(gate % 2 == 0 ? two : two >> 16);
          return *reinterpret_cast<const T*>(&bits);
        });
      }
      if (kCell == Cell::lstm) put(reserve + 4 * H, [&](int q) { return T(own.c[half][q]); });
    });
  }

  const PersistentForward<T> args_;
  const StreamShape shape_;
  const Sequence s_;
  std::byte *stages_, *kept_, *slots_;
  float4* biases_;
  Mbarrier *full_, *empty_;
  volatile int* begun_;  // timesteps whose products have begun
  uint32_t* flags_;
  int tile_, first_unit_, first_sample_, samples_, rotation_;
};

template <typename T, Cell kCell, int kQuads, int kSamples>
__global__ void __launch_bounds__(kBlockThreads, 1)
    rnn_forward_weight_streaming_kernel(const __grid_constant__ WeightStreamingForwardParams<T> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // the kernels refuse other GPUs
  extern __shared__ __align__(16) std::byte shared_bytes[];
  using Pass = WeightStreamingForwardPass<T, kCell, kQuads, kSamples>;
  Pass pass(p, shared_bytes);
  if (!pass.has_samples()) return;
  pass.start();
  // Uniform over the warp in a form the compiler recognises, because descriptors are derived from
  // it.
  const int group = __shfl_sync(~0u, int(threadIdx.x) / 128, 0);
  const int thread = int(threadIdx.x) - 2 * 128;
  if (group < 2) {
    take_registers<224>();
    if (group < Pass::kTiles) pass.apply(group);
  } else {
    give_registers<56>();
    if (thread < 32) {
      pass.copy();
    } else {
      pass.prefetch(thread - 32);
    }
  }
#endif
}

}  // namespace ridgeline::cuda::recurrent
