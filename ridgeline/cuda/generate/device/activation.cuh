#pragma once

// Activations and dropout of generated kernels.

#include "ridgeline/cuda/generate/device/numbers.cuh"

namespace ridgeline::generated {

enum class ActivationFn {
  none,
  relu,
  tanh,
  sigmoid,
  gelu,
  silu,
  leaky_relu,
  elu,
  softplus,
  hardswish
};

// Overloads for the two types that values are computed in.
__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }
__device__ inline float log1p_of(float x) { return log1pf(x); }
__device__ inline double log1p_of(double x) { return log1p(x); }
__device__ inline float expm1_of(float x) { return expm1f(x); }
__device__ inline double expm1_of(double x) { return expm1(x); }
__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }
__device__ inline float erfc_of(float x) { return erfcf(x); }
__device__ inline double erfc_of(double x) { return erfc(x); }
__device__ inline float sqrt_of(float x) { return sqrtf(x); }
__device__ inline double sqrt_of(double x) { return sqrt(x); }

template <typename A>
__device__ inline A normal_cdf(A x) {
  return A(0.5) * erfc_of(-x * A(0.70710678118654752440));
}

// The division of fp32 numbers has a slow path, for which a tile of results would wait: the
// reciprocal is refined instead. It is 0 where the exponential is beyond all numbers.
__device__ inline float sigmoid_of(float x) {
  const float e = 1.0f + expf(-x), d = e > 3e38f ? 3e38f : e;
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return fmaf(r, fmaf(-d, r, 1.0f), r);
}
__device__ inline double sigmoid_of(double x) { return 1.0 / (1.0 + exp(-x)); }

// y = f(x); `slope` becomes f'(x). `parameter` is the slope of leaky_relu, the alpha of elu.
template <ActivationFn kActivation, typename A>
__device__ inline A bend(A x, A& slope, A parameter) {
  if constexpr (kActivation == ActivationFn::relu) {
    slope = x > A(0) ? A(1) : A(0);
    return x < A(0) ? A(0) : x;  // NaN stays NaN
  } else if constexpr (kActivation == ActivationFn::tanh) {
    const A y = tanh_of(x);
    slope = A(1) - y * y;
    return y;
  } else if constexpr (kActivation == ActivationFn::sigmoid) {
    const A y = sigmoid_of(x);
    slope = y * (A(1) - y);
    return y;
  } else if constexpr (kActivation == ActivationFn::gelu) {
    const A cdf = normal_cdf(x);
    slope = cdf + x * exp_of(A(-0.5) * x * x) * A(0.39894228040143267794);
    return x * cdf;
  } else if constexpr (kActivation == ActivationFn::silu) {
    const A y = x * sigmoid_of(x);
    slope = sigmoid_of(x) * (A(1) + x * sigmoid_of(-x));
    return y;
  } else if constexpr (kActivation == ActivationFn::leaky_relu) {
    slope = x > A(0) ? A(1) : parameter;
    return x < A(0) ? parameter * x : x;
  } else if constexpr (kActivation == ActivationFn::elu) {
    slope = x > A(0) ? A(1) : parameter * exp_of(x);
    return x < A(0) ? parameter * expm1_of(x) : x;
  } else if constexpr (kActivation == ActivationFn::softplus) {
    slope = sigmoid_of(x);
    return log1p_of(exp_of(x < A(0) ? x : -x)) + (x < A(0) ? A(0) : x);
  } else if constexpr (kActivation == ActivationFn::hardswish) {
    const A part = x + A(3);
    slope = x < A(-3) ? A(0) : x > A(3) ? A(1) : x * A(1.0 / 3) + A(0.5);
    return x * (part < A(0) ? A(0) : part > A(6) ? A(6) : part) * A(1.0 / 6);
  } else {
    slope = A(1);
    return x;
  }
}

// f' from the value that the forward pass left for products, which is y times `kept` if it was not
// dropped.
template <ActivationFn kActivation, typename A>
__device__ inline A slope_at(A y, A kept) {
  if constexpr (kActivation == ActivationFn::relu) return y > A(0) ? kept : A(0);
  if constexpr (kActivation == ActivationFn::tanh) return A(1) - y * y;
  if constexpr (kActivation == ActivationFn::sigmoid) return y * (A(1) - y);
  return A(1);
}

// Philox4x32-10, identical to core/philox.h.
struct Words {
  u32 w[4];
};
__device__ inline Words philox(u64 seed, u64 stream, u64 counter) {
  u32 c0 = u32(counter), c1 = u32(counter >> 32), c2 = u32(stream), c3 = u32(stream >> 32);
  u32 k0 = u32(seed), k1 = u32(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = u64(0xD2511F53u) * c0, p1 = u64(0xCD9E8D57u) * c2;
    const u32 n0 = u32(p1 >> 32) ^ c1 ^ k0, n2 = u32(p0 >> 32) ^ c3 ^ k1;
    c1 = u32(p1), c3 = u32(p0), c0 = n0, c2 = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// How an image is augmented: the draw of ops/augmentation.h.
struct Augment {
  int down, right;
  bool flip;
};
__device__ inline Augment augment_of(u64 seed, u64 stream, u64 sample, u64 shift, bool flip) {
  const Words words = philox(seed, stream, sample);
  const auto move = [&](u32 word) { return int(u64(word) * (2 * shift + 1) >> 32) - int(shift); };
  return {move(words.w[0]), move(words.w[1]), flip && words.w[2] >> 31 != 0};
}

// Which of four neighbouring elements from `element` on are kept.
template <bool kAligned>
__device__ inline void keep_four(bool (&keep)[4], u64 seed, u64 stream, u64 element, float p) {
  Words words = philox(seed, stream, element / 4);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (!kAligned && c > 0 && (element + c) % 4 == 0)
      words = philox(seed, stream, (element + c) / 4);
    const int at = kAligned ? c : int((element + c) % 4);
    const u32 word = at == 0   ? words.w[0]
                     : at == 1 ? words.w[1]
                     : at == 2 ? words.w[2]
                               : words.w[3];
    keep[c] = float(word >> 8) * 0x1p-24f >= p;
  }
}

}  // namespace ridgeline::generated
