#pragma once

#include "ridgeline/cuda/recurrent/batch_parallel_pass.cuh"
#include "ridgeline/cuda/recurrent/classifier.h"

namespace ridgeline::cuda::recurrent {

// The last layer, softmax and loss of a block's samples. Every block of a cluster computes all of
// it, from the states of all units. Intermediate values are rounded to T as if they were stored.
template <typename T, int kSamples, int kPlaces, int kThreads>
class HeadOfBlock {
 public:
  struct Memory {
    float states[kSamples][kPlaces], logits[kSamples][kMostClasses], slopes[kSamples][kMostClasses];
  };

  __device__ HeadOfBlock(const ClassifierHead<T>& args, Memory& memory, int first_sample, int batch,
                         int hidden)
      : args_(args), m_(memory), first_(first_sample), batch_(batch), hidden_(hidden) {}

  // From the states to the gradients of the logits. `writes`: this block stores them.
  __device__ void run(bool writes) const {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    for (int c = warp; c < args_.classes; c += kThreads / 32) {
      float sums[kSamples];
      dots(c, lane, sums);
      const float bias = args_.b ? args_.b[c] : 0.0f;
#pragma unroll
      for (int local = 0; local < kSamples; ++local) {
        if (lane == 0) m_.logits[local][c] = float(T(sums[local] + bias));
      }
    }
    __syncthreads();
    if (warp < kSamples && first_ + warp < batch_) softmax(warp, lane, writes);
    __syncthreads();
  }
  // The gradient of a unit of a sample's state.
  __device__ float gradient(int local, int unit) const {
    float sum = 0.0f;
#pragma unroll 8
    for (int c = 0; c < args_.classes; ++c) {
      sum += m_.slopes[local][c] * float(args_.w[c * hidden_ + unit]);
    }
    return float(T(sum));
  }

 private:
  static constexpr uint32_t kAll = 0xffffffffu;

  // The products of a class's weights with the samples' states.
  __device__ void dots(int c, int lane, float (&sums)[kSamples]) const {
    float w[kPlaces / 32];
#pragma unroll
    for (int i = 0; i < kPlaces / 32; ++i) {
      const int j = 32 * i + lane;
      w[i] = j < hidden_ ? float(args_.w[c * hidden_ + j]) : 0.0f;
    }
#pragma unroll
    for (int local = 0; local < kSamples; ++local) {
      sums[local] = 0.0f;
#pragma unroll
      for (int i = 0; i < kPlaces / 32; ++i) {
        const int j = 32 * i + lane;
        if (j < hidden_) sums[local] += m_.states[local][j] * w[i];
      }
#pragma unroll
      for (int off = 16; off > 0; off /= 2) {
        sums[local] += __shfl_xor_sync(kAll, sums[local], off);
      }
    }
  }
  // A lane has a class.
  __device__ void softmax(int local, int lane, bool writes) const {
    const int sample = first_ + local, label = args_.label[sample];
    const bool inside = lane < args_.classes;
    const float logit = inside ? m_.logits[local][lane] : -INFINITY;
    float most = logit;
    int best = lane;
#pragma unroll
    for (int off = 16; off > 0; off /= 2) {  // the first maximum
      const float other = __shfl_xor_sync(kAll, most, off);
      const int at = __shfl_xor_sync(kAll, best, off);
      if (other > most || (other == most && at < best)) {
        most = other;
        best = at;
      }
    }
    const float power = inside ? expf(logit - most) : 0.0f;
    float sum = power;
#pragma unroll
    for (int off = 16; off > 0; off /= 2) sum += __shfl_xor_sync(kAll, sum, off);
    const float at_label = m_.logits[local][label];
    const float scale =
        float(args_.scale * (args_.loss_scale != nullptr ? *args_.loss_scale : 1.0));
    const T slope = T(scale * (power / sum - (lane == label ? 1.0f : 0.0f)));
    if (inside) m_.slopes[local][lane] = float(slope);
    if (!writes) return;
    if (inside) args_.gradients[int64_t(sample) * args_.classes + lane] = slope;
    if (lane == 0) args_.scores[sample] = {double(logf(sum) + most - at_label), best == label};
  }

  const ClassifierHead<T>& args_;
  Memory& m_;
  int first_, batch_, hidden_;
};

}  // namespace ridgeline::cuda::recurrent
