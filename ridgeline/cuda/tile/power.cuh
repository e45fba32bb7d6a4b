#pragma once

// Powers of two that scale values into the range of fp16.

namespace ridgeline::cuda {

// The larger of |a| and |b|; NaN if either is NaN.
__device__ inline float largest(float a, float b) {
  a = fabsf(a), b = fabsf(b);
  return a < b || b != b ? b : a;
}

struct HalfPower {
  float up, down;  // up * down is 1; values up to `most` are below 2^15 when multiplied by `down`
};

// NaN if `most` is not finite, so that products are NaN, too. Below 2^-110 everything becomes 0.
__device__ inline HalfPower half_power(float most) {
  const int bits = __float_as_int(most);
  const int exponent = (bits >> 23 & 0xff) - 126;  // most < 2^exponent
  if (exponent > 128) return {NAN, NAN};
  const int power = max(exponent, -110) - 15;
  // The bias of both is 127; 2^-power is at most 2^125.
  return {__int_as_float((power + 127) << 23), __int_as_float((127 - power) << 23)};
}

}  // namespace ridgeline::cuda
