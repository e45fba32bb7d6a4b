#pragma once

#include "ridgeline/cuda/conv/nan_max.cuh"
#include "ridgeline/cuda/conv1d/chain_tile.cuh"

// The end of a chain of convolutions: normalisation over a sample's (channels, positions), relu and
// pool, for two samples whose results are in accumulator layout. Word (sample * 14 + j) * 2 + high
// of a thread holds positions 8j + 2q and 8j + 2q + 1 (q is its index in a quad) of its channel or,
// if high is 1, of the channel eight further.
namespace ridgeline::cuda {

// Sums four values over the multiplying threads. `scratch` has four floats per warp.
__device__ inline float4 chain_total(float4 value, float4* scratch) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value.x += __shfl_xor_sync(0xffffffffu, value.x, step);
    value.y += __shfl_xor_sync(0xffffffffu, value.y, step);
    value.z += __shfl_xor_sync(0xffffffffu, value.z, step);
    value.w += __shfl_xor_sync(0xffffffffu, value.w, step);
  }
  named_barrier(2, Chain::kMultiplying);  // the previous total has been read
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  named_barrier(2, Chain::kMultiplying);
  float4 total{0, 0, 0, 0};
#pragma unroll
  for (int w = 0; w < Chain::kMultiplying / 32; ++w) {
    total.x += scratch[w].x;
    total.y += scratch[w].y;
    total.z += scratch[w].z;
    total.w += scratch[w].w;
  }
  return total;
}

// Calls each(value, sample) with a thread's sums of valid positions.
template <typename F>
__device__ inline void chain_each(const float (&acc)[112], int left, F each) {
  const int q = threadIdx.x % 4;
#pragma unroll
  for (int sample = 0; sample < Chain::kSamples; ++sample) {
#pragma unroll
    for (int j = 0; j < Chain::kEights; ++j) {
      const bool always = 8 * j + 8 <= Chain::kLeastLeft;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (always || 8 * j + 2 * q + k % 2 < left) {
          each(acc[(sample * Chain::kEights + j) * 4 + k], sample);
        }
      }
    }
  }
}

// Moments of two samples from two passes over half their channels each. Squares are taken around
// the mean of the first half. The mean of all channels differs from it by at most the standard
// deviation of all, so subtracting the square of the mean from the mean of the squares loses at
// most one bit.
struct ChainMoments {
  float2 about;    // means of the first pass
  float2 squares;  // this thread's sums of squares around them
};

__device__ inline ChainMoments chain_first_moments(const float (&acc)[112], int left,
                                                   float4* scratch) {
  float sum[2] = {0, 0};
  chain_each(acc, left, [&](float value, int sample) { sum[sample] += value; });
  const float4 total = chain_total({sum[0], sum[1], 0, 0}, scratch);
  const float count = float(left) * (Chain::kChannels / 2);
  const float about[2] = {total.x / count, total.y / count};
  float squares[2] = {0, 0};
  chain_each(acc, left, [&](float value, int sample) {
    const float off = value - about[sample];
    squares[sample] = fmaf(off, off, squares[sample]);
  });
  return {{about[0], about[1]}, {squares[0], squares[1]}};
}

// The factors of y = x * scale + shift for each sample.
struct ChainScale {
  float scale[2], shift[2];
};

__device__ inline ChainScale chain_scale(const float (&acc)[112], const ChainMoments& first,
                                         const ChainWork& work, float4* scratch) {
  const float about[2] = {first.about.x, first.about.y};
  float sum[2] = {0, 0}, squares[2] = {first.squares.x, first.squares.y};
  chain_each(acc, work.left, [&](float value, int sample) {
    const float off = value - about[sample];
    sum[sample] += off;
    squares[sample] = fmaf(off, off, squares[sample]);
  });
  const float4 total = chain_total({sum[0], sum[1], squares[0], squares[1]}, scratch);
  const float count = float(work.left) * Chain::kChannels;
  const float off[2] = {total.x / count, total.y / count}, all[2] = {total.z, total.w};
  ChainScale result;
#pragma unroll
  for (int sample = 0; sample < 2; ++sample) {
    const float variance = nan_max(all[sample] / count - off[sample] * off[sample], 0.0f);
    result.scale[sample] = rsqrtf(variance + work.epsilon);
    result.shift[sample] = -(about[sample] + off[sample]) * result.scale[sample];
  }
  return result;
}

// The maximum of each three of 24 neighbouring positions of a channel, which four lanes hold: lane
// q has values[k] = positions 8k + 2q and 8k + 2q + 1, and returns windows 2(q^1) and 2(q^1) + 1.
// Of their six positions, the two in the middle are a pair of its own, and the others are its
// neighbours'.
__device__ inline float2 pool3(const float2 (&values)[3]) {
  const int lane = threadIdx.x % 32, q = lane % 4, quad = lane - q;
  float most[3];
#pragma unroll
  for (int k = 0; k < 3; ++k) most[k] = nan_max(values[k].x, values[k].y);
  const float to_right = q == 1 ? most[2] : q == 2 ? most[1] : most[0];
  const float to_left = q == 2 ? most[0] : q == 1 ? most[1] : most[2];
  const float2 own = q == 1 ? values[0] : q == 2 ? values[2] : values[1];
  const float from_left = __shfl_sync(0xffffffffu, to_right, quad + (q + 3) % 4);
  const float from_right = __shfl_sync(0xffffffffu, to_left, quad + (q + 1) % 4);
  return {nan_max(from_left, own.x), nan_max(own.y, from_right)};
}

template <typename T>
__device__ inline void chain_store(T* to, int windows, int window, float2 best) {
  const uint32_t packed = pack_relu<T>(best.x, best.y);
  if (windows % 2 == 0) {
    if (window < windows) *reinterpret_cast<uint32_t*>(to + window) = packed;
  } else {
    const T* each = reinterpret_cast<const T*>(&packed);
    if (window < windows) to[window] = each[0];
    if (window + 1 < windows) to[window + 1] = each[1];
  }
}

// Normalises a pass's results, which packed(i) returns word by word, applies relu and pool, and
// stores them. gamma and beta arrive through the ring buffer, two groups of eight columns per
// stage; next_norm(j) returns those of columns j.
template <typename T, typename P, typename N>
__device__ inline void chain_finish(P packed, N next_norm, const ChainScale& scale,
                                    const ChainWork& work, int tile, int channel,
                                    T* __restrict__ y) {
  const int windows = work.left / 3, first_window = 2 * (threadIdx.x % 4 ^ 1);
  T* to = y + (int64_t{tile} * Chain::kSamples * Chain::kChannels + channel) * windows;
#pragma unroll
  for (int group = 0; group < (Chain::kEights + 2) / 3; ++group) {
    uint4 norm[3];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      if (group * 3 + k < Chain::kEights) norm[k] = next_norm(group * 3 + k);
    }
#pragma unroll
    for (int high = 0; high < 2; ++high) {
#pragma unroll
      for (int sample = 0; sample < Chain::kSamples; ++sample) {
        float2 values[3] = {};
#pragma unroll
        for (int k = 0; k < 3; ++k) {
          const int j = group * 3 + k;
          if (j >= Chain::kEights) continue;
          const float2 x = unpack_two<T>(packed((sample * Chain::kEights + j) * 2 + high));
          const float2 g = unpack_two<T>(high ? norm[k].z : norm[k].x);
          const float2 b = unpack_two<T>(high ? norm[k].w : norm[k].y);
          values[k] = {fmaf(fmaf(x.x, scale.scale[sample], scale.shift[sample]), g.x, b.x),
                       fmaf(fmaf(x.y, scale.scale[sample], scale.shift[sample]), g.y, b.y)};
        }
        const float2 best = pool3(values);
        if (tile * Chain::kSamples + sample < work.n) {
          chain_store(to + (sample * Chain::kChannels + high * 8) * windows, windows,
                      8 * group + first_window, best);
        }
      }
    }
  }
}

}  // namespace ridgeline::cuda
