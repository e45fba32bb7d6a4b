#pragma once

// Declares the number types alone, for headers that device code includes too.

#include <cstddef>
#include <cstdint>

namespace ridgeline {

enum class DType : uint8_t { fp64, fp32, bf16, fp16, int32, int64, uint8 };

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
    case DType::int64:
      return 8;
    case DType::fp32:
    case DType::int32:
      return 4;
    case DType::bf16:
    case DType::fp16:
      return 2;
    case DType::uint8:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType dtype) { return dtype <= DType::fp16; }

}  // namespace ridgeline
