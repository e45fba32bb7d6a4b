#pragma once

// What follows a convolution in generated functions, for the samples of a block in its shared
// memory: statistics and gradients of batch normalisation, the activation, and the maximum over
// windows. Sums have a fixed order: over a block's samples, then over the blocks.

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

  template <typename Kept>
  __device__ void load(int out, const Kept* from_bias, const Kept* from_gamma,
                       const Kept* from_beta) const {
    for (int c = thread_of(); c < kOutP; c += kThreads) {
      const bool real = c < out;
      bias()[c] = real && from_bias != nullptr ? Value(widen(from_bias[c])) : Value(0);
      gamma()[c] = !real                   ? Value(0)
                   : from_gamma != nullptr ? Value(widen(from_gamma[c]))
                                           : Value(1);
      beta()[c] = real && from_beta != nullptr ? Value(widen(from_beta[c])) : Value(0);
    }
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

// Batch normalisation (if kNorm), activation and a maximum over windows of kPoolH x kPoolW pixels
// of C's outputs. `To` says where pixels of the result are stored (x_at).
template <typename Math, typename C, typename To, bool kNorm, ActivationFn kActivation,
          long long kParameter, int kPoolH, int kPoolW, int kBatch, int kBlocks>
struct ConvTail {
  using Value = typename Math::Value;
  using Number = typename Math::Number;
  using F = Fours<C::kOutP>;
  using Params = Channels<Value, C::kOutP>;
  static constexpr int kWindowsH = (C::kOutH + kPoolH - 1) / kPoolH;
  static constexpr int kWindowsW = (C::kOutW + kPoolW - 1) / kPoolW;
  static constexpr int kCount = kBatch * C::kPixels;  // numbers of a channel
  static constexpr int kParts = kBatch < kBlocks ? kBatch : kBlocks;  // blocks with samples

  // The mean and the sum of squared distances from it, by channel, over a block's samples. Sums are
  // of distances from the first number, which lose no digits by a large mean.
  static __device__ void moments(const Number* z, int count, Value* to, Value* scratch) {
    Value sums[2][4] = {}, first[4];
    load_four(z + C::z_at(0, 0) + 4 * F::quad(), first);
    for (int i = 0; i < count && F::lane() < F::kLanes; ++i) {
#pragma unroll 4
      for (int p = F::lane(); p < C::kPixels; p += F::kLanes) {
        Value v[4];
        load_four(z + i * C::kZSize + C::z_at(p / C::kOutW, p % C::kOutW) + 4 * F::quad(), v);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          sums[0][c] += v[c] - first[c];
          sums[1][c] += (v[c] - first[c]) * (v[c] - first[c]);
        }
      }
    }
    Value* const added = scratch + channel_scratch(C::kOutP, 2);
    channel_sums<C::kOutP, 2>(sums, added, scratch);
    __syncthreads();
    if (const int c = thread_of(); c < C::kOutP) {
      const Value off = added[c] / Value(count * C::kPixels);
      to[c] = widen(z[C::z_at(0, 0) + c]) + off;
      to[C::kOutP + c] = max(added[C::kOutP + c] - added[c] * off, Value(0));
    }
  }
  // The statistics of all samples from the blocks' moments. `keep(channel, mean, var)`.
  template <typename Keep>
  static __device__ void statistics(const Value* moments, const Params& to, double epsilon,
                                    Value* scratch, const Keep& keep) {
    const int own = thread_of() % C::kOutP;
    const Value first = moments[own];
    block_sums<C::kOutP, kParts>(to.mean(), scratch, [&](int b, int c, Value (&sums)[2]) {
      const Value size = Value(samples_of<kBatch, kBlocks>(b) * C::kPixels);
      const Value off = moments[2 * b * C::kOutP + c] - first;
      sums[0] += size * off;
      sums[1] += moments[(2 * b + 1) * C::kOutP + c] + size * off * off;
    });
    __syncthreads();
    if (const int c = thread_of(); c < C::kOutP) {
      const Value off = to.mean()[c] / Value(kCount), mean = first + off;
      const Value var = max(to.rstd()[c] - to.mean()[c] * off, Value(0)) / Value(kCount);
      to.mean()[c] = mean;
      to.rstd()[c] = Value(1) / sqrt_of(var + Value(epsilon));
      if (c < C::kOut) keep(c, mean, var);
    }
    __syncthreads();
  }

  // y = the largest f(normalised z) of each window.
  static __device__ void forward(const Number* z, const Params& params, Number* y) {
    if (F::lane() >= F::kLanes) return;
    const Own own(params);
#pragma unroll 1
    for (int w = F::lane(); w < (C::kOutH / kPoolH) * (C::kOutW / kPoolW); w += F::kLanes) {
      const int p = w / (C::kOutW / kPoolW), q = w % (C::kOutW / kPoolW);
      const Largest largest(z, own, p, q);
      Number n[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) n[c] = Math::operand(largest.value[c]);
      store_four(y + To::x_at(p, q) + 4 * F::quad(), n);
    }
  }

  // The sums over a block's samples of the gradient dn of normalised values, and of its products
  // with them: to[2][kOutP]. dy: of the results.
  static __device__ void sums(const Number* z, const Number* dy, int count, const Params& params,
                              Value* to, Value* scratch) {
    Value all[2][4] = {};
    if (F::lane() < F::kLanes) {
      const Own own(params);
      for (int i = 0; i < count; ++i) {
#pragma unroll 1
        for (int w = F::lane(); w < (C::kOutH / kPoolH) * (C::kOutW / kPoolW); w += F::kLanes) {
          const int p = w / (C::kOutW / kPoolW), q = w % (C::kOutW / kPoolW);
          const Largest largest(z + i * C::kZSize, own, p, q);
          Value d[4];
          load_four(dy + i * To::kXSize + To::x_at(p, q) + 4 * F::quad(), d);
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const Value dn = rounded(d[c] * largest.slope[c]);
            all[0][c] += dn;
            all[1][c] += dn * ((largest.z[c] - own.mean[c]) * own.rstd[c]);
          }
        }
      }
    }
    channel_sums<C::kOutP, 2>(all, to, scratch);
  }
  static __device__ void total(const Value* sums, const Params& to, Value* scratch) {
    block_sums<C::kOutP, kParts>(to.off(), scratch, [&](int b, int c, Value (&all)[2]) {
      all[0] += sums[2 * b * C::kOutP + c];
      all[1] += sums[(2 * b + 1) * C::kOutP + c];
    });
    __syncthreads();
  }

  // Replaces z of a sample by its gradient; `bias` is increased by the thread's sums of it.
  static __device__ void backward(Number* z, const Number* dy, const Params& params,
                                  Value (&bias)[1][4]) {
    if (F::lane() >= F::kLanes) return;
    const Own own(params);
    Value off[4] = {}, along[4] = {};
    if constexpr (kNorm) {
      load(params.off(), off);
      load(params.along(), along);
#pragma unroll
      for (int c = 0; c < 4; ++c) off[c] /= Value(kCount), along[c] /= Value(kCount);
    }
#pragma unroll 1
    for (int w = F::lane(); w < kWindowsH * kWindowsW; w += F::kLanes) {
      const int p = w / kWindowsW, q = w % kWindowsW;
      const bool whole = (C::kOutH % kPoolH == 0 || p < C::kOutH / kPoolH) &&
                         (C::kOutW % kPoolW == 0 || q < C::kOutW / kPoolW);
      const Largest largest(z, own, p, q);
      Value d[4] = {};
      if (whole) load_four(dy + To::x_at(p, q) + 4 * F::quad(), d);
#pragma unroll
      for (int tap = 0; tap < kPoolH * kPoolW; ++tap) {
        if (!inside(p, q, tap)) continue;
        Number* const at = z + z_of(p, q, tap) + 4 * F::quad();
        Value v[4];
        load_four(at, v);
        Number n[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          Value dn = largest.place[c] == tap ? rounded(d[c] * largest.slope[c]) : Value(0);
          if constexpr (kNorm) {
            const Value unit = (v[c] - own.mean[c]) * own.rstd[c];
            dn = own.gamma[c] * own.rstd[c] * (dn - off[c] - unit * along[c]);
          }
          n[c] = Narrow<Number>::from(dn);
          bias[0][c] += widen(n[c]);
        }
        store_four(at, n);
      }
    }
  }

 private:
  static __device__ Value rounded(Value v) { return widen(Narrow<Number>::from(v)); }
  static __device__ void load(const Value* from, Value (&v)[4]) {
#pragma unroll
    for (int c = 0; c < 4; ++c) v[c] = from[4 * F::quad() + c];
  }
  // The thread's channels.
  struct Own {
    Value mean[4], rstd[4], gamma[4], beta[4];
    __device__ explicit Own(const Params& from) {
      if constexpr (kNorm) {
        load(from.mean(), mean);
        load(from.rstd(), rstd);
        load(from.gamma(), gamma);
        load(from.beta(), beta);
      }
    }
  };
  static __device__ int z_of(int p, int q, int tap) {
    return C::z_at(p * kPoolH + tap / kPoolW, q * kPoolW + tap % kPoolW);
  }
  static __device__ bool inside(int p, int q, int tap) {
    return (C::kOutH % kPoolH == 0 || p * kPoolH + tap / kPoolW < C::kOutH) &&
           (C::kOutW % kPoolW == 0 || q * kPoolW + tap % kPoolW < C::kOutW);
  }
  // Where a window's result is first reached, with z, the result and the slope there. NaN counts as
  // the largest.
  struct Largest {
    Value z[4], value[4], slope[4];
    int place[4];
    __device__ Largest(const Number* image, const Own& own, int p, int q) {
#pragma unroll
      for (int tap = 0; tap < kPoolH * kPoolW; ++tap) {
        if (!inside(p, q, tap)) continue;
        Value v[4];
        load_four(image + z_of(p, q, tap) + 4 * F::quad(), v);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          Value n = v[c], s;
          if constexpr (kNorm)
            n = (v[c] - own.mean[c]) * own.rstd[c] * own.gamma[c] + own.beta[c];
          const Value y = bend<kActivation>(n, s, Value(__longlong_as_double(kParameter)));
          if (tap == 0 || y > value[c] || (y != y && value[c] == value[c]))
            z[c] = v[c], value[c] = y, slope[c] = s, place[c] = tap;
        }
      }
    }
  };
};

// The image of the last convolution's results, which the linear layers read by channels.
template <int kChannels, int kHeight, int kWidth, int kLd>
struct Flat {
  static constexpr int kPixels = kHeight * kWidth, kXSize = kPixels * kLd;
  static constexpr int kValues = kChannels * kPixels;
  static __device__ int x_at(int r, int s) { return (r * kWidth + s) * kLd; }

  // Stores batch row `row` of the linear layers' operands.
  template <typename Number, int kRowLd, int kTransposedLd>
  static __device__ void store(const Number* image, Number* rows, Number* transposed, int row) {
    for (int i = thread_of(); i < kValues; i += kThreads) {
      const Number n = image[i % kPixels * kLd + i / kPixels];
      rows[i64(row) * kRowLd + i] = n;
      transposed[i64(i) * kTransposedLd + row] = n;
    }
  }
  // Loads the gradient of that row.
  template <typename Number, int kRowLd>
  static __device__ void load(const Number* rows, int row, Number* image) {
    for (int i = thread_of(); i < kValues; i += kThreads)
      image[i % kPixels * kLd + i / kPixels] = rows[i64(row) * kRowLd + i];
  }
};

}  // namespace ridgeline::generated
