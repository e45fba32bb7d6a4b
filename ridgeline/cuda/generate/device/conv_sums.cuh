#pragma once

// Values per channel of generated convolutions, and sums over pixels and blocks by channel. All
// sums have a fixed order.

#include "ridgeline/cuda/generate/device/conv.cuh"

namespace ridgeline::generated {

// Values per output channel, in shared memory; each has kOutP values, zeros past the end.
template <typename Value, int kOutP>
struct Channels {
  Value* at;  // kKinds * kOutP values
  static constexpr int kKinds = 7;
  __device__ Value* bias() const { return at; }
  __device__ Value* gamma() const { return at + kOutP; }
  __device__ Value* beta() const { return at + 2 * kOutP; }
  __device__ Value* mean() const { return at + 3 * kOutP; }
  __device__ Value* rstd() const { return at + 4 * kOutP; }
  // Sums of the gradient of the normalised values, and of its products with them.
  __device__ Value* off() const { return at + 5 * kOutP; }
  __device__ Value* along() const { return at + 6 * kOutP; }

  // What a thread loads before it stores any of it, so that one wait is for all loads.
  struct Held {
    Value bias, gamma, beta;
  };
  template <typename Kept>
  static __device__ Held fetch(int out, const Kept* bias, const Kept* gamma, const Kept* beta) {
    static_assert(kOutP <= kThreads);
    const int c = thread_of();
    const bool real = c < out;
    return {real && bias != nullptr ? Value(widen(bias[c])) : Value(0),
            real && gamma != nullptr ? Value(widen(gamma[c])) : Value(real ? 1 : 0),
            real && beta != nullptr ? Value(widen(beta[c])) : Value(0)};
  }
  __device__ void put(const Held& held) const {
    if (const int c = thread_of(); c < kOutP)
      bias()[c] = held.bias, gamma()[c] = held.gamma, beta()[c] = held.beta;
  }
};

// Threads share the channels of an image in fours: a thread has channels 4 * quad() .. + 3 of every
// kLanes-th pixel or window from lane() on.
template <int kChannels>
struct Fours {
  static constexpr int kQuads = kChannels / 4, kLanes = kThreads / kQuads;
  static __device__ int quad() { return thread_of() % kQuads; }
  static __device__ int lane() { return thread_of() / kQuads; }  // kLanes or more: none
};

// Adds `values` of all threads by channel: to[k][channel]. `scratch` has channel_scratch values.
// Threads without a pixel pass zeros.
__host__ __device__ constexpr int channel_scratch(int channels, int kinds) {
  return kThreads / (channels / 4) * channels * kinds;
}
template <int kChannels, int kKinds, typename Value>
__device__ inline void channel_sums(const Value (&values)[kKinds][4], Value* to, Value* scratch) {
  using F = Fours<kChannels>;
  // If a warp has whole groups of lanes with the same channels, it adds those first.
  constexpr bool kWhole = 32 % F::kQuads == 0;
  constexpr int kParts = kWhole ? kWarps : F::kLanes;
  const int part = kWhole ? warp_of() : F::lane();
  __syncthreads();  // the previous sums have been read
#pragma unroll
  for (int k = 0; k < kKinds; ++k) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      Value v = values[k][c];
      if constexpr (kWhole) {
#pragma unroll
        for (int off = F::kQuads; off < 32; off *= 2) v += __shfl_xor_sync(~0u, v, off);
      }
      if (part < kParts && (!kWhole || lane_of() < F::kQuads))
        scratch[(part * kKinds + k) * kChannels + 4 * F::quad() + c] = v;
    }
  }
  __syncthreads();
  for (int i = thread_of(); i < kKinds * kChannels; i += kThreads) {
    Value sum = Value(0);
#pragma unroll 8
    for (int p = 0; p < kParts; ++p) sum += scratch[p * kKinds * kChannels + i];
    to[i] = sum;
  }
}

// Sums over blocks: f(block, channel, sums) adds the terms of one of kBlocks blocks to two sums.
// to[channel] and to[kChannels + channel] receive them; a block barrier must follow.
template <int kChannels, int kBlocks, typename Value, typename F>
__device__ inline void block_sums(Value* to, Value* scratch, const F& f) {
  constexpr int kParts = kThreads / kChannels;
  const int thread = thread_of(), channel = thread % kChannels, part = thread / kChannels;
  Value sums[2] = {Value(0), Value(0)};
  if (part < kParts) {
#pragma unroll 8
    for (int b = part; b < kBlocks; b += kParts) f(b, channel, sums);
    scratch[part * 2 * kChannels + channel] = sums[0];
    scratch[(part * 2 + 1) * kChannels + channel] = sums[1];
  }
  __syncthreads();
  for (int i = thread; i < 2 * kChannels; i += kThreads) {
    Value sum = Value(0);
#pragma unroll
    for (int p = 0; p < kParts; ++p) sum += scratch[p * 2 * kChannels + i];
    to[i] = sum;
  }
}

// The samples of block `block`: block, block + kBlocks, and so on.
template <int kBatch, int kBlocks>
__device__ constexpr int samples_of(int block) {
  return block < kBatch ? (kBatch - block + kBlocks - 1) / kBlocks : 0;
}

}  // namespace ridgeline::generated
