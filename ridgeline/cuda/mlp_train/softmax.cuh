#pragma once

#include <cstdint>

#include "ridgeline/cuda/mlp_train/fragments.cuh"
#include "ridgeline/cuda/mlp_train/mlp_train.h"

namespace ridgeline::cuda::mlp {

// Smooth activations are not inlined: code that does not run should not occupy the instruction
// cache.
static __device__ __noinline__ float activate_smooth(ActivationFn f, float x) {
  return f == ActivationFn::tanh ? tanhf(x) : __fdividef(1.0f, 1.0f + __expf(-x));
}

__device__ inline float activate(ActivationFn f, float x) {
  if (f == ActivationFn::relu) return x > 0.0f ? x : (x == x ? 0.0f : x);  // NaN stays NaN
  return activate_smooth(f, x);
}

template <typename T>
static __device__ __noinline__ uint32_t times_derivative_smooth(ActivationFn f, float d0, float d1,
                                                                uint32_t y) {
  const float2 v = Pair<T>::unpack(y);
  const bool tanh = f == ActivationFn::tanh;
  return Pair<T>::pack(d0 * (tanh ? 1.0f - v.x * v.x : v.x * (1.0f - v.x)),
                       d1 * (tanh ? 1.0f - v.y * v.y : v.y * (1.0f - v.y)));
}

// Two gradients times the derivative, which is computed from the activation's values: both as
// pairs.
template <typename T>
__device__ inline uint32_t times_derivative(ActivationFn f, float d0, float d1, uint32_t y) {
  if (f == ActivationFn::relu) return Pair<T>::pack(d0, d1) & Pair<T>::positive(y);
  return times_derivative_smooth<T>(f, d0, d1, y);
}

// kLanes lanes of a warp take one sample: loss = logsumexp(logits) - logits[label], dlogits =
// softmax - onehot. dlogits are not divided by the batch size; the update does that, which keeps
// small gradients in fp16's range. dlogits are written as [sample][class] and as [class][sample],
// and are 0 for samples past the batch and classes past the last. `correct`: the label's logit is
// the first maximum. All lanes of the warp must take part; `lane` counts within the kLanes.
template <typename T, int kLanes>
__device__ inline void softmax_xent_row(const float* logits, int classes, int padded_classes,
                                        int padded_dlogits, int label, bool live, int lane,
                                        T* dlogits, T* dlogits_t, int t_stride, float* loss,
                                        int* correct) {
  float largest = -INFINITY, sum = 0.0f, at_label = 0.0f;
  int where = 0x7fffffff;
#pragma unroll 1
  for (int c = lane; c < classes; c += kLanes) {
    const float v = logits[c];
    if (v > largest) largest = v, where = c;
    if (c == label) at_label = v;
  }
#pragma unroll
  for (int d = kLanes / 2; d > 0; d >>= 1) {
    const float other = __shfl_xor_sync(~0u, largest, d);
    const int other_where = __shfl_xor_sync(~0u, where, d);
    if (other > largest || (other == largest && other_where < where)) {
      largest = other, where = other_where;
    }
  }
#pragma unroll 1
  for (int c = lane; c < classes; c += kLanes) sum += __expf(logits[c] - largest);
#pragma unroll
  for (int d = kLanes / 2; d > 0; d >>= 1) {
    sum += __shfl_xor_sync(~0u, sum, d);
    at_label += __shfl_xor_sync(~0u, at_label, d);
  }
  const float scale = live ? __fdividef(1.0f, sum) : 0.0f;
#pragma unroll 1
  for (int c = lane; c < padded_dlogits; c += kLanes) {
    float g = 0.0f;
    if (live && c < classes) g = __expf(logits[c] - largest) * scale - (c == label ? 1.0f : 0.0f);
    dlogits[c] = T(g);
    if (c < padded_classes) dlogits_t[c * t_stride] = T(g);
  }
  if (lane == 0) {
    *loss = live ? __logf(sum) + largest - at_label : 0.0f;
    *correct = live && where == label;
  }
}

// One warp sums the batch's loss and correct predictions in a fixed order.
template <int kSampleTiles>
__device__ inline void report_batch(const MlpTrainArgs& args, int t, const float* sample_loss,
                                    const int* sample_correct, int lane) {
  float loss = 0.0f;
  int correct = 0;
  for (int b = lane; b < 16 * kSampleTiles; b += 32) {
    loss += sample_loss[b];
    correct += sample_correct[b];
  }
  for (int d = 16; d > 0; d >>= 1) {
    loss += __shfl_xor_sync(~0u, loss, d);
    correct += __shfl_xor_sync(~0u, correct, d);
  }
  if (lane == 0) {
    args.loss[t] = loss / args.shape.batch;
    args.correct[t] = correct;
  }
}

}  // namespace ridgeline::cuda::mlp
