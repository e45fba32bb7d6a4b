#pragma once

#include <string_view>

#include "ridgeline/core/dtype.h"

namespace ridgeline {

// How a run computes. fp32x3 is fp32 emulated on tensor cores by three products; tf32 rounds the
// factors of a product to 10 mantissa bits; bf16 and fp16 accumulate in fp32. Kernels of different
// precisions are never mixed or compared.
enum class Precision : uint8_t { fp64, fp32, fp32x3, tf32, bf16, fp16 };

std::string_view name(Precision precision);
Precision parse_precision(std::string_view text);  // throws usage

// The type activations and products' factors are stored in.
constexpr DType storage(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return DType::fp64;
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::fp16;
    default:
      return DType::fp32;
  }
}

constexpr bool is_half(Precision precision) {
  return precision == Precision::bf16 || precision == Precision::fp16;
}

}  // namespace ridgeline
