#pragma once

#include "ridgeline/cuda/conv1d/one_hot.h"
#include "ridgeline/cuda/plain/accumulate.cuh"

// The mean and variance of a one-hot convolution's outputs, computed without the outputs.
//
// Let c[s, u] be the mean of w[o, s, u] over the channels, w' = w - c, and b' = b - mean(b). An
// output is x[o, t] = C[t] + e[o, t], where C[t] = mean(b) + sum_u c[text[t + u], u] is its mean
// over the channels, and e[o, t] = b'[o] + sum_u w'[o, text[t + u], u] has mean zero. Hence over
// all (o, t)
//   mean = mean_t C[t],   var = mean_t (C[t] - mean)^2 + mean_(o,t) e[o, t]^2,
// which are two sums of squares around their means, so nothing cancels. The second is a sum of
// products of pairs of taps, G[(s, u), (r, v)] = sum_o w'[o, s, u] w'[o, r, v], which depend only
// on the two symbols, their distance and u. Summed over u they leave one value for two symbols at
// distance d, H[d, s, r], wherever the pair is in the text, except for the few positions at its
// ends that not every tap reaches.
namespace ridgeline::cuda {

struct OneHotMoments {
  float* column;    // c[symbols + 1, taps], the last row zero
  float* diagonal;  // D[symbols + 1, taps] = G[(s, u), (s, u)] + 2 sum_o b'[o] w'[o, s, u]
  float* single;    // [symbols + 1], D summed over u
  float* gram;      // G[filter, filter], for pairs with u < v
  float* pair;      // H[taps - 1, symbols + 1, symbols + 1] for d = 1, 2, ...: twice the sum of G
  double* bias;     // mean(b), sum of b'^2
};

// One warp per filter element computes its mean over the channels. Block 0 also handles the bias.
template <typename T>
__global__ void one_hot_columns_kernel(OneHotBlockShape s, const T* w, MixedIn<T> b,
                                       OneHotMoments m) {
  const int lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const auto warp_sum = [](double value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
  };
  if (warp < s.filter()) {
    double sum = 0;
    for (int o = lane; o < s.out; o += 32) sum += double(float(w[int64_t(o) * s.filter() + warp]));
    sum = warp_sum(sum);
    if (lane == 0) m.column[warp] = float(sum / s.out);
  } else if (warp < s.filter() + s.taps) {
    if (lane == 0) m.column[warp] = 0;
  } else if (warp == s.filter() + s.taps) {
    double sum = 0, squares = 0;
    for (int o = lane; b && o < s.out; o += 32) sum += double(b[o]);
    const double mean = warp_sum(sum) / s.out;
    for (int o = lane; b && o < s.out; o += 32) squares += (b[o] - mean) * (b[o] - mean);
    squares = warp_sum(squares);
    if (lane == 0) {
      m.bias[0] = mean;
      m.bias[1] = squares;
    }
  }
}

// One block per symbol s and 128 filter elements f computes G[(s, u), f] for all u.
template <typename T, int kTaps>
__global__ void one_hot_gram_kernel(OneHotBlockShape s, const T* w, MixedIn<T> b, OneHotMoments m) {
  constexpr int kChunk = 64;  // channels at a time
  __shared__ float mine[kChunk][kTaps + 1];
  const int symbol = blockIdx.x, f = blockIdx.y * 128 + threadIdx.x;
  const bool inside = f < s.filter();
  const float column = inside ? m.column[f] : 0.0f;
  const float bias_mean = float(m.bias[0]);
  float sum[kTaps] = {}, with_bias = 0;
  for (int o0 = 0; o0 < s.out; o0 += kChunk) {
    __syncthreads();
    for (int j = threadIdx.x; j < kChunk * kTaps; j += 128) {
      const int o = j / kTaps, at = symbol * kTaps + j % kTaps;
      mine[o][j % kTaps] =
          o0 + o < s.out ? float(w[int64_t(o0 + o) * s.filter() + at]) - m.column[at] : 0.0f;
    }
    __syncthreads();
    for (int o = 0; inside && o < kChunk && o0 + o < s.out; ++o) {
      const float value = float(w[int64_t(o0 + o) * s.filter() + f]) - column;
      if (b) with_bias = fmaf(value, b[o0 + o] - bias_mean, with_bias);
#pragma unroll
      for (int u = 0; u < kTaps; ++u) sum[u] = fmaf(mine[o][u], value, sum[u]);
    }
  }
  if (!inside) return;
#pragma unroll
  for (int u = 0; u < kTaps; ++u) {
    const int row = symbol * kTaps + u;
    if (f % kTaps > u) m.gram[int64_t(row) * s.filter() + f] = sum[u];
    if (f == row) m.diagonal[row] = sum[u] + 2 * with_bias;
  }
}

// One thread per element of `pair` and `single`.
__global__ void one_hot_pairs_kernel(OneHotBlockShape s, OneHotMoments m) {
  const int codes = s.symbols + 1, count = (s.taps - 1) * codes * codes;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    const int d = i / (codes * codes) + 1, left = i / codes % codes, right = i % codes;
    float sum = 0;
    for (int u = 0; left < s.symbols && right < s.symbols && u + d < s.taps; ++u) {
      sum += m.gram[int64_t(left * s.taps + u) * s.filter() + right * s.taps + u + d];
    }
    m.pair[i] = 2 * sum;
  } else if (i < count + codes) {
    const int symbol = i - count;
    float sum = 0;
    for (int u = 0; u < s.taps; ++u) {
      if (symbol == s.symbols) m.diagonal[symbol * s.taps + u] = 0;
      sum += symbol < s.symbols ? m.diagonal[symbol * s.taps + u] : 0.0f;
    }
    m.single[symbol] = sum;
  }
}

__device__ inline int code_at(const OneHotBlockShape& s, const CodeSource& from, int64_t sample,
                              int64_t set_index, int p) {
  const int code = from.set != nullptr ? int(from.set[set_index * s.length + p])
                                       : from.token[sample * s.length + p];
  return min(code, s.symbols);
}

__device__ inline int64_t set_index_of(const OneHotBlockShape& s, const CodeSource& from,
                                       int64_t sample) {
  if (from.set == nullptr) return 0;
  return from.order[*from.first + int64_t(*from.tick) * s.n + sample];
}

constexpr int kMomentWarps = 16;

// One warp per sample, with the table of pairs in shared memory. stats[i] = {mean, rstd}.
template <int kTaps>
__global__ void __launch_bounds__(kMomentWarps * 32)
    one_hot_moments_kernel(OneHotBlockShape s, CodeSource from, OneHotMoments m, float epsilon,
                           float2* stats) {
  extern __shared__ __align__(16) char shared[];
  const int codes = s.symbols + 1, pairs = (kTaps - 1) * codes * codes;
  float* pair = reinterpret_cast<float*>(shared);
  float* column = pair + pairs;
  float* single = column + codes * kTaps;
  for (int j = threadIdx.x; j < pairs; j += blockDim.x) pair[j] = m.pair[j];
  for (int j = threadIdx.x; j < codes * kTaps; j += blockDim.x) column[j] = m.column[j];
  for (int j = threadIdx.x; j < codes; j += blockDim.x) single[j] = m.single[j];
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int text_bytes = (s.length + 3) / 4 * 4;
  uint8_t* text = reinterpret_cast<uint8_t*>(single + codes) + warp * text_bytes;
  const int steps = s.steps();
  const auto warp_sum = [](double value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
  };
  for (int64_t sample = int64_t(blockIdx.x) * kMomentWarps + warp; sample < s.n;
       sample += int64_t(gridDim.x) * kMomentWarps) {
    const int64_t set_index = set_index_of(s, from, sample);
    __syncwarp();
    for (int p = lane; p < s.length; p += 32)
      text[p] = uint8_t(code_at(s, from, sample, set_index, p));
    __syncwarp();
    float squares = 0;
    for (int p = lane; p < s.length; p += 32) {
      const int left = text[p];
      if (p >= kTaps - 1 && p < steps) {  // every tap reaches it
        squares += single[left];
#pragma unroll
        for (int d = 1; d < kTaps; ++d) {
          squares += pair[((d - 1) * codes + left) * codes + text[p + d]];
        }
        continue;
      }
      for (int u = max(0, p - steps + 1); u <= min(kTaps - 1, p); ++u) {
        squares += m.diagonal[left * kTaps + u];
        for (int d = 1; u + d < kTaps; ++d) {
          const int right = text[p + d];
          if (left == s.symbols || right == s.symbols) continue;
          squares += 2 * m.gram[int64_t(left * kTaps + u) * s.filter() + right * kTaps + u + d];
        }
      }
    }
    const auto level = [&](int t) {
      float sum = 0;
#pragma unroll
      for (int u = 0; u < kTaps; ++u) sum += column[text[t + u] * kTaps + u];
      return sum;
    };
    float sum = 0;
    for (int t = lane; t < steps; t += 32) sum += level(t);
    const float mean = float(warp_sum(sum) / steps);
    float spread = 0;
    for (int t = lane; t < steps; t += 32) spread += (level(t) - mean) * (level(t) - mean);
    const double inner = (warp_sum(squares) + steps * m.bias[1]) / (double(s.out) * steps);
    const double var = warp_sum(spread) / steps + (inner < 0.0 ? 0.0 : inner);
    if (lane == 0) stats[sample] = {float(m.bias[0] + mean), float(1.0 / sqrt(var + epsilon))};
  }
}

}  // namespace ridgeline::cuda
