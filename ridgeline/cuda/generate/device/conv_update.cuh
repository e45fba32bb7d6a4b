#pragma once

// The ends of a step with convolutions: samples as operands of the first one, and the updates of
// weights, which the program's own memory keeps.

#include "ridgeline/cuda/generate/device/conv_pass.cuh"

namespace ridgeline::generated {

// Copies a sample of kCount numbers.
template <int kCount, typename Sample>
__device__ inline void fetch_sample(const Sample* from, Sample* to) {
  constexpr int kEach = kCount % 4 == 0 ? 4 : 1;
#pragma unroll 4
  for (int i = thread_of(); i < kCount / kEach; i += kThreads) {
    reinterpret_cast<Pack<Sample, kEach>*>(to)[i] =
        reinterpret_cast<const Pack<Sample, kEach>*>(from)[i];
  }
}

// Copies an image of bytes as GatherAugment changes it. An axis of one pixel does not move down.
template <int kChannels, int kHeight, int kWidth>
__device__ inline void fetch_augmented(const u8* from, const Augment& how, u8* to) {
  const int down = kHeight > 1 ? how.down : 0;
#pragma unroll 8
  for (int i = thread_of(); i < kChannels * kHeight * kWidth; i += kThreads) {
    const int q = i % kWidth, p = i / kWidth % kHeight, first = i - p * kWidth - q;
    const int r = p - down, s = (how.flip ? kWidth - 1 - q : q) - how.right;
    const bool inside = u32(r) < u32(kHeight) && u32(s) < u32(kWidth);
    to[i] = inside ? from[first + r * kWidth + s] : u8(0);
  }
}

// Unfolds a sample of kChannels x kHeight x kWidth numbers into the input of C: value
// (channel, tap) of a pixel.
template <typename Math, typename C, int kChannels, int kHeight, int kWidth, int kTapsH, int kTapsW,
          int kStepH, int kStepW, int kPadH, int kPadW, typename Sample>
__device__ inline void unfold(const Sample* sample, double scale, double shift,
                              typename Math::Number* x) {
  using Number = typename Math::Number;
  constexpr int kTaps = kTapsH * kTapsW;
  // Channels past the end stay zero.
#pragma unroll 1
  for (int pixel = thread_of(); pixel < C::kPixels; pixel += kThreads) {
    const int r = pixel / C::kOutW * kStepH - kPadH, s = pixel % C::kOutW * kStepW - kPadW;
#pragma unroll
    for (int group = 0; group < (kChannels * kTaps + 3) / 4; ++group) {
      Number n[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = 4 * group + c, channel = at / kTaps;
        const int row = r + at % kTaps / kTapsW, column = s + at % kTapsW;
        typename Math::Value v = 0;
        if (at < kChannels * kTaps && u32(row) < u32(kHeight) && u32(column) < u32(kWidth))
          v = sample_value<typename Math::Value>(
              sample[(channel * kHeight + row) * kWidth + column], scale, shift);
        n[c] = Math::operand(v);
      }
      store_four(x + pixel * C::kXLd + 4 * group, n);
    }
  }
}

// A convolution's weights and bias (or null) with their states, and the operands of products.
template <typename Math, typename Kept, typename Copy, typename Optimizer, typename C, int kParts>
struct ConvUpdate {
  using Value = typename Math::Value;
  using Number = typename Math::Number;
  // Values of a block's part of the gradient: of the weights, then of the bias.
  static constexpr int kElements = C::kOut * C::kWeights + C::kOutP;
  static constexpr int kPart = (kElements + kThreads - 1) / kThreads * kThreads;
  static constexpr int kTasks = kPart / kThreads;
  Tensor<Math, Kept, Optimizer> w, b;
  Copy* copy;           // of w, or null
  Number *rows, *back;  // [kOut][kForwardLd], and by class [kIn][backward_ld]

  // Writes the operands of weight `i` of the program's order.
  __device__ void write(int i, Value value) const {
    const int out = i / (C::kIn * C::kTaps), in = i / C::kTaps % C::kIn, tap = i % C::kTaps;
    const Number n = Math::operand(value);
    rows[out * kForwardLd<Math, C> + tap * C::kInP + in] = n;
    if constexpr (C::kBack) {
      const int h = C::kTapsH - 1 - tap / C::kTapsW, w = C::kTapsW - 1 - tap % C::kTapsW;
      const int k = h % C::kClassesH * C::kClassesW + w % C::kClassesW;
      const int at = h / C::kClassesH * C::taps_w(k) + w / C::kClassesW;
      back[backward_begin<Math, C>(k) + in * backward_ld<Math, C>(k) + at * C::kOutP + out] = n;
    }
  }
  __device__ void take(int first, int stride) const {
    for (int i = first; i < C::kOut * C::kIn * C::kTaps; i += stride) write(i, widen(w.w[i]));
  }
  // Adds the parts of the gradient of tasks `first`, `first + stride`, and so on, and applies it.
  // `scratch` has kWarps * kThreads values.
  __device__ void run(const Value* parts, int first, int stride, const Optimizer& optimizer,
                      const Rates<Value>& rates, Value* scratch) const {
    const int thread = thread_of(), lane = thread & 31, warp = thread >> 5;
#pragma unroll 1
    for (int task = first; task < kTasks; task += stride) {
      const int element = kThreads * task + thread, of_weight = element % C::kWeights;
      const int in = of_weight % C::kInP, tap = of_weight / C::kInP;
      const bool of_bias = element >= C::kOut * C::kWeights;
      const int i = of_bias ? element - C::kOut * C::kWeights
                            : (element / C::kWeights * C::kIn + in) * C::kTaps + tap;
      const bool real = of_bias ? i < C::kOut && b.w != nullptr : in < C::kIn;
      const Tensor<Math, Kept, Optimizer> tensor{of_bias ? b.w : w.w, of_bias ? b.m : w.m,
                                                 of_bias ? b.v : w.v};
      typename Tensor<Math, Kept, Optimizer>::Now now{};
      if (real) now = tensor.fetch(i);
      Value sum[2][4] = {};
#pragma unroll 8
      for (int p = warp; p < kParts; p += kWarps) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Value v[4];
          load_four(parts + i64(p) * kPart + kThreads * task + 128 * half + 4 * lane, v);
#pragma unroll
          for (int c = 0; c < 4; ++c) sum[half][c] += v[c];
        }
      }
      __syncthreads();  // the previous sums have been read
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_four(scratch + kThreads * warp + 128 * half + 4 * lane, sum[half]);
      __syncthreads();
      if (!real) continue;
      Value all = Value(0);
#pragma unroll
      for (int k = 0; k < kWarps; ++k) all += scratch[kThreads * k + thread];
      const Value value = tensor.apply(i, all, now, optimizer, rates);
      if (of_bias) continue;
      write(i, value);
      if (copy != nullptr) copy[i] = Narrow<Copy>::from(value);
    }
  }
};

}  // namespace ridgeline::generated
