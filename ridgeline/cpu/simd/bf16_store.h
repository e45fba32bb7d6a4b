#pragma once

#include <cstdint>

namespace ridgeline::cpu::simd {

// Conversions to and from bits of bf16, rounded to nearest even; NaN stays NaN.
void widen_bf16(const uint16_t* from, float* to, int64_t count);
void narrow_bf16(const float* from, uint16_t* to, int64_t count);

// The epilogue of a convolution over rows of channels, for one panel: y = relu(c + bias), with
// `pool` the largest of each three rows. c is [rows][kBf16Panel], rows of y are `out` apart.
struct Bf16ConvEnd {
  const float* bias;  // [kBf16Panel]
  bool relu, pool;
  int64_t out;
};
void store_bf16_rows(const Bf16ConvEnd& end, const float* c, int64_t rows, uint16_t* y);

}  // namespace ridgeline::cpu::simd
