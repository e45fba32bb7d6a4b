#pragma once

#include <cstdint>

namespace ridgeline::cpu::simd {

// To and from bits of bf16, rounded to nearest even; a NaN stays one.
void widen_bf16(const uint16_t* from, float* to, int64_t count);
void narrow_bf16(const float* from, uint16_t* to, int64_t count);

// The end of a convolution over rows of channels, for one panel: y = relu(c + bias), the largest of
// each three rows with `pool`. c is [rows][kBf16Panel], rows of y are `out` apart.
struct Bf16ConvEnd {
  const float* bias;  // [kBf16Panel]
  bool relu, pool;
  int64_t out;
};
void store_bf16_rows(const Bf16ConvEnd& end, const float* c, int64_t rows, uint16_t* y);

}  // namespace ridgeline::cpu::simd
