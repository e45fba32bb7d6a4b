#pragma once

#include <cuda_fp16.h>

#include "ridgeline/cuda/tile/head.h"
#include "ridgeline/cuda/tile/power.cuh"

// The gradient that a head passes down: dz = dh * f', and the forms in which products read it.
namespace ridgeline::cuda::tile {

// f' of relu, tanh and sigmoid from their output, and 1 for others: a + y * (b + c * y), or 0 or 1.
template <typename T>
struct Slope {
  T a, b, c;
  bool relu;

  __device__ explicit Slope(ActivationFn activation)
      : a(activation == ActivationFn::sigmoid ? T(0) : T(1)),
        b(activation == ActivationFn::sigmoid ? T(1) : T(0)),
        c(activation == ActivationFn::sigmoid || activation == ActivationFn::tanh ? T(-1) : T(0)),
        relu(activation == ActivationFn::relu) {}
  __device__ T operator()(T y) const {
    const T smooth = fma(y, fma(c, y, b), a);
    return relu && !(y > T(0)) ? T(0) : smooth;
  }
};

// Where a thread stores dz of its hidden unit, row by row: whole (kTerms 0), or in fp16 terms.
template <typename T, int kTerms>
struct DzOut {
  T* at;
  int64_t pitch;
  OrderedBits<T> most = 0;

  template <int kClasses>
  __device__ DzOut(const HeadArgs<T>& args, int row0, int j, const T (&)[kClasses])
      : at(args.dz + int64_t(row0) * args.hidden + j), pitch(args.hidden) {}
  __device__ void put(T dz) {
    const T size = fabs(dz);
    most = max(most, reinterpret_cast<const OrderedBits<T>&>(size));
    *at = dz;
    at += pitch;
  }
  __device__ void finish(const HeadArgs<T>& args, int j) const {
    // The result does not depend on the order.
    if (args.dz_most != nullptr) atomicMax(args.dz_most + j, most);
  }
};
template <int kTerms>
struct DzTerms {
  __half* at;
  int64_t pitch;
  float to_terms;

  template <int kClasses>
  __device__ DzTerms(const HeadArgs<float>& args, int row0, int j, const float (&weight)[kClasses])
      : at(static_cast<__half*>(args.dz_terms) + int64_t(row0) * kTerms * args.hidden + j),
        pitch(args.hidden) {
    // The sum of |dl| over the classes is at most 2 * scale, and f' is at most 1.
    float most = 0.0f;
#pragma unroll
    for (int c = 0; c < kClasses; ++c) most = largest(most, weight[c]);
    const HalfPower power = half_power(2.0f * float(args.scale) * most);
    to_terms = power.down;
    if (row0 == 0) args.dz_power[j] = power.up;
  }
  __device__ void put(float dz) {
    float left = dz * to_terms;
#pragma unroll
    for (int term = 0; term < kTerms; ++term, at += pitch) {
      const __half value = __float2half_rn(left);
      *at = value;
      left -= __half2float(value);
    }
  }
  __device__ void finish(const HeadArgs<float>&, int) const {}
};
template <>
struct DzOut<float, 1> : DzTerms<1> {
  using DzTerms<1>::DzTerms;
};
template <>
struct DzOut<float, 2> : DzTerms<2> {
  using DzTerms<2>::DzTerms;
};

}  // namespace ridgeline::cuda::tile
