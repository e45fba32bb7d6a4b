#pragma once

#include <cstdint>

#include "ridgeline/cuda/int8_split/int8_split.h"

namespace ridgeline::cuda {

template <typename T>
struct FixedPower {
  T up, down;  // up * down is 1; values up to `most` are less than 2^(8 * digits - 2) times `up`
};

// NaN if `most` is not finite, so that the sums are NaN, too. If all values are tiny, they become
// 0.
template <typename T>
__device__ FixedPower<T> fixed_power(T most) {
  constexpr int kBits = 8 * kDigits<T> - 2, kLeast = std::is_same_v<T, double> ? -900 : -90;
  if (!(most <= (std::is_same_v<T, double> ? T(1.7e308) : T(3.4e38)))) return {T(NAN), T(0)};
  int exponent = 0;
  frexp(most, &exponent);  // most < 2^exponent
  const int power = kBits - max(exponent, kLeast);
  return {ldexp(T(1), -power), ldexp(T(1), power)};
}

__device__ inline int whole(float v) { return __float2int_rn(v); }
__device__ inline int64_t whole(double v) { return __double2ll_rn(v); }

// Calls f(digit, value) for the digits of v * down, lowest first.
template <typename T, typename F>
__device__ void for_each_digit(T v, T down, const F& f) {
  auto left = whole(v * down);
#pragma unroll
  for (int d = 0; d < kDigits<T>; ++d) {
    const auto digit = int8_t(left & 0xff);
    f(d, digit);
    left = (left - digit) >> 8;
  }
}

}  // namespace ridgeline::cuda
