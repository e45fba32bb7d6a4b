#pragma once

// What follows a convolution in generated functions, for the samples of a block in its shared
// memory: statistics and gradients of batch normalisation, the activation, and the maximum over
// windows. Sums have a fixed order: over a block's samples, then over the blocks.

#include "ridgeline/cuda/generate/device/conv_sums.cuh"

namespace ridgeline::generated {

// The larger of two numbers; NaN counts as the largest.
__device__ inline float larger(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
__device__ inline double larger(double a, double b) { return b > a || b != b ? b : a; }

// Batch normalisation (if kNorm), activation and a maximum over windows of kPoolH x kPoolW pixels
// of C's outputs. `To` says where pixels of the result are stored (x_at). kBias: the gradient of
// the convolution's bias is wanted.
template <typename Math, typename C, typename To, bool kNorm, bool kBias, ActivationFn kActivation,
          long long kParameter, int kPoolH, int kPoolW, int kBatch, int kBlocks>
struct ConvTail {
  using Value = typename Math::Value;
  using Number = typename Math::Number;
  using F = Fours<C::kOutP>;
  using Params = Channels<Value, C::kOutP>;
  static constexpr int kTaps = kPoolH * kPoolW;
  static constexpr int kWholeH = C::kOutH / kPoolH, kWholeW = C::kOutW / kPoolW;
  static constexpr int kWindowsH = (C::kOutH + kPoolH - 1) / kPoolH;
  static constexpr int kWindowsW = (C::kOutW + kPoolW - 1) / kPoolW;
  static constexpr int kCount = kBatch * C::kPixels;                  // numbers of a channel
  static constexpr int kParts = kBatch < kBlocks ? kBatch : kBlocks;  // blocks with samples
  // Where windows of a sample reach their maximum: a byte per window and channel.
  static constexpr int kPlaces = kTaps > 1 ? kWholeH* kWholeW* C::kOutP : 0;

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
    block_sums<C::kOutP, kParts>(to.mean(), scratch, [&](int b, int c, Value(&sums)[2]) {
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

  // y = the largest f(normalised z) of each window, which it first reaches at its place.
  static __device__ void forward(const Number* z, const Params& params, Number* y, u8* places) {
    if (F::lane() >= F::kLanes) return;
    const Own own(params);
    // The next window is loaded before this one's result is stored.
    Four<Number> taps[kTaps];
    load_taps(taps, z, F::lane());
#pragma unroll 1
    for (int w = F::lane(); w < kWholeH * kWholeW; w += F::kLanes) {
      Four<Number> next[kTaps];
      load_taps(next, z, w + F::kLanes);
      Value best[4];
      u32 place = 0;
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          Value n = own.normalised(taps[tap].value(c), c), slope;
          if constexpr (!kRising) n = bend<kActivation>(n, slope, parameter());
          if (tap > 0 && n > best[c]) place = (place & ~(255u << 8 * c)) | u32(tap) << 8 * c;
          best[c] = tap == 0 ? n : larger(best[c], n);
        }
        taps[tap] = next[tap];
      }
      Number n[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Value slope;
        n[c] = Math::operand(kRising ? bend<kActivation>(best[c], slope, parameter()) : best[c]);
      }
      store_four(y + To::x_at(w / kWholeW, w % kWholeW) + 4 * F::quad(), n);
      if constexpr (kTaps > 1)
        *reinterpret_cast<u32*>(places + w * C::kOutP + 4 * F::quad()) = place;
    }
  }

  // The sums over a block's samples of the gradient dn of normalised values, and of its products
  // with them: to[2][kOutP]. dy: of the results.
  static __device__ void sums(const Number* z, const Number* dy, const u8* places, int count,
                              const Params& params, Value* to, Value* scratch) {
    Value all[2][4] = {};
    if (F::lane() < F::kLanes) {
      const Own own(params);
      for (int i = 0; i < count; ++i) {
#pragma unroll 2
        for (int w = F::lane(); w < kWholeH * kWholeW; w += F::kLanes) {
          const Routed routed(z + i * C::kZSize, dy + i * To::kXSize, places + i * kPlaces, own,
                              w / kWholeW, w % kWholeW);
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            all[0][c] += routed.dn[c];
            all[1][c] += routed.dn[c] * (routed.z[c] - own.mean[c]);
          }
        }
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) all[1][c] *= own.rstd[c];
    }
    channel_sums<C::kOutP, 2>(all, to, scratch);
  }
  static __device__ void total(const Value* sums, const Params& to, Value* scratch) {
    block_sums<C::kOutP, kParts>(to.off(), scratch, [&](int b, int c, Value(&all)[2]) {
      all[0] += sums[2 * b * C::kOutP + c];
      all[1] += sums[(2 * b + 1) * C::kOutP + c];
    });
    __syncthreads();
  }

  // Replaces z of a sample by its gradient; `bias` is increased by the thread's sums of it.
  static __device__ void backward(Number* z, const Number* dy, const u8* places,
                                  const Params& params, Value (&bias)[1][4]) {
    if (F::lane() >= F::kLanes) return;
    const Own own(params);
    // The gradient is by_dn * dn + by_z * z + rest.
    Value by_dn[4], by_z[4], rest[4];
    if constexpr (kNorm) {
      constexpr Value kEach = Value(1) / Value(kCount);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = 4 * F::quad() + c;
        by_dn[c] = params.gamma()[at] * own.rstd[c];
        by_z[c] = -by_dn[c] * own.rstd[c] * (params.along()[at] * kEach);
        rest[c] = -by_dn[c] * (params.off()[at] * kEach) - by_z[c] * own.mean[c];
      }
    }
    Window now(z, dy, places, F::lane());
#pragma unroll 1
    for (int w = F::lane(); w < kWindowsH * kWindowsW; w += F::kLanes) {
      const int p = w / kWindowsW, q = w % kWindowsW;
      const Window next(z, dy, places, w + F::kLanes);
      Value dn[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        // Products with 0 and 1: for a choice among values the compiler would index an array of
        // them, in local memory.
        Value at = kTaps == 1 ? now.taps[0].value(c) : Value(0), slope;
#pragma unroll
        for (int tap = 0; tap < kTaps && kTaps > 1; ++tap)
          at += Value(int(now.place >> 8 * c & 255) == tap ? 1 : 0) * now.taps[tap].value(c);
        bend<kActivation>(own.normalised(at, c), slope, parameter());
        dn[c] = now.whole ? rounded(now.dy.value(c) * slope) : Value(0);
      }
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        if (!inside(p, q, tap)) continue;
        Number n[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          Value d = int(now.place >> 8 * c & 255) == tap ? dn[c] : Value(0);
          if constexpr (kNorm) d = by_dn[c] * d + (by_z[c] * now.taps[tap].value(c) + rest[c]);
          n[c] = Narrow<Number>::from(d);
          if constexpr (kBias) bias[0][c] += widen(n[c]);
        }
        store_four(
            z + C::z_at(p * kPoolH + tap / kPoolW, q * kPoolW + tap % kPoolW) + 4 * F::quad(), n);
      }
      now = next;
    }
  }

 private:
  // Activations that never fall: the largest input gives the largest output.
  static constexpr bool kRising =
      kTaps == 1 || kActivation == ActivationFn::none || kActivation == ActivationFn::relu ||
      kActivation == ActivationFn::tanh || kActivation == ActivationFn::sigmoid ||
      kActivation == ActivationFn::softplus;
  static __device__ Value rounded(Value v) { return widen(Narrow<Number>::from(v)); }
  static __device__ bool inside(int p, int q, int tap) {
    return (C::kOutH % kPoolH == 0 || p * kPoolH + tap / kPoolW < C::kOutH) &&
           (C::kOutW % kPoolW == 0 || q * kPoolW + tap % kPoolW < C::kOutW);
  }
  // Past the end the last window is loaded.
  static __device__ void load_taps(Four<Number> (&taps)[kTaps], const Number* z, int window) {
    const int w = min(window, kWholeH * kWholeW - 1);
    const Number* const at =
        z + C::z_at(w / kWholeW * kPoolH, w % kWholeW * kPoolW) + 4 * F::quad();
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
      taps[tap] = Four<Number>::load(at + tap / kPoolW * C::kZStepRow + tap % kPoolW * C::kZStep);
  }
  // What the gradient of a window reads.
  struct Window {
    Four<Number> taps[kTaps], dy;
    u32 place;
    bool whole;
    __device__ Window(const Number* z, const Number* of, const u8* places, int window) {
      const int w = min(window, kWindowsH * kWindowsW - 1), p = w / kWindowsW, q = w % kWindowsW;
      whole = (C::kOutH % kPoolH == 0 || p < kWholeH) && (C::kOutW % kPoolW == 0 || q < kWholeW);
      const int row = min(p, kWholeH - 1), column = min(q, kWholeW - 1);
      place = 0;
      if constexpr (kTaps > 1)
        place = *reinterpret_cast<const u32*>(places + (row * kWholeW + column) * C::kOutP +
                                              4 * F::quad());
      dy = Four<Number>::load(of + To::x_at(row, column) + 4 * F::quad());
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        taps[tap] = {};
        if (inside(p, q, tap))
          taps[tap] = Four<Number>::load(
              z + C::z_at(p * kPoolH + tap / kPoolW, q * kPoolW + tap % kPoolW) + 4 * F::quad());
      }
    }
  };
  static __device__ Value parameter() { return Value(__longlong_as_double(kParameter)); }

  // The thread's channels.
  struct Own {
    Value mean[4], rstd[4], scale[4], shift[4];
    __device__ explicit Own(const Params& from) {
      if constexpr (kNorm) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int at = 4 * F::quad() + c;
          mean[c] = from.mean()[at], rstd[c] = from.rstd()[at];
          scale[c] = rstd[c] * from.gamma()[at];
          shift[c] = from.beta()[at] - mean[c] * scale[c];
        }
      }
    }
    __device__ Value normalised(Value v, int c) const {
      return kNorm ? v * scale[c] + shift[c] : v;
    }
  };
  // A window's gradient, rounded like the stored one of the normalised values, with z at its place.
  struct Routed {
    Value z[4], dn[4];
    __device__ Routed(const Number* image, const Number* dy, const u8* places, const Own& own,
                      int p, int q) {
      const Number* const at = image + C::z_at(p * kPoolH, q * kPoolW) + 4 * F::quad();
      if constexpr (kTaps > 1) {
        const u32 place =
            *reinterpret_cast<const u32*>(places + (p * kWholeW + q) * C::kOutP + 4 * F::quad());
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int tap = int(place >> 8 * c & 255);
          z[c] = widen(at[tap / kPoolW * C::kZStepRow + tap % kPoolW * C::kZStep + c]);
        }
      } else {
        load_four(at, z);
      }
      load_four(dy + To::x_at(p, q) + 4 * F::quad(), dn);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Value slope;
        bend<kActivation>(own.normalised(z[c], c), slope, parameter());
        dn[c] = rounded(dn[c] * slope);
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

  // Stores batch row `row` of the linear layers' operand.
  template <typename Number, int kRowLd>
  static __device__ void store(const Number* image, Number* rows, int row) {
    for (int i = thread_of(); i < kValues; i += kThreads)
      rows[i64(row) * kRowLd + i] = image[i % kPixels * kLd + i / kPixels];
  }
  // Transposes that operand, unit by unit: units `first`, `first + stride`, and so on.
  template <typename Number, int kBatch, int kRowLd, int kTransposedLd>
  static __device__ void transpose(const Number* rows, Number* transposed, int first, int stride) {
    constexpr int kAcross = (kValues + 15) / 16, kUnits = (kBatch + 15) / 16 * kAcross;
    const int lane = lane_of();
#pragma unroll 2
    for (int unit = first; unit < kUnits; unit += stride) {
      const int row = unit / kAcross * 16 + 2 * (lane >> 2);
      const int column = unit % kAcross * 16 + 4 * (lane & 3);
      const Four<Number> a = Four<Number>::load(rows + i64(row) * kRowLd + column);
      const Four<Number> b = Four<Number>::load(rows + i64(row + 1) * kRowLd + column);
      const Number* const as = reinterpret_cast<const Number*>(&a);
      const Number* const bs = reinterpret_cast<const Number*>(&b);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        *reinterpret_cast<Pack<Number, 2>*>(transposed + i64(column + c) * kTransposedLd +
                                            row) = {{as[c], bs[c]}};
      }
    }
  }
  // Loads the gradient of that row.
  template <typename Number, int kRowLd>
  static __device__ void load(const Number* rows, int row, Number* image) {
    constexpr int kTogether = 8;  // loads before the first store
#pragma unroll 1
    for (int i0 = thread_of(); i0 < kValues; i0 += kTogether * kThreads) {
      Number n[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k)
        n[k] = rows[i64(row) * kRowLd + min(i0 + k * kThreads, kValues - 1)];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const int i = i0 + k * kThreads;
        if (i < kValues) image[i % kPixels * kLd + i / kPixels] = n[k];
      }
    }
  }
};

}  // namespace ridgeline::generated
