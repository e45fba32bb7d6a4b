#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "ridgeline/core/dtype.h"

namespace ridgeline {

// The precision a run computes in. fp32x3 is fp32 emulated on tensor cores by three products; tf32
// rounds the factors of a product to 10 mantissa bits; bf16 and fp16 accumulate in fp32. Kernels of
// different precisions are never mixed or compared.
enum class Precision : uint8_t { fp64, fp32, fp32x3, tf32, bf16, fp16 };

std::string_view name(Precision precision);
Precision parse_precision(std::string_view text);  // throws usage

// The type in which activations and the factors of products are stored.
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

inline constexpr Precision kPrecisions[] = {Precision::fp64, Precision::fp32, Precision::fp32x3,
                                            Precision::tf32, Precision::bf16, Precision::fp16};

// A set of precisions.
class Precisions {
 public:
  constexpr Precisions(std::initializer_list<Precision> all) {
    for (const Precision precision : all) bits_ |= bit(precision);
  }
  constexpr bool has(Precision precision) const { return (bits_ & bit(precision)) != 0; }
  constexpr Precisions operator|(Precisions other) const {
    Precisions both{};
    both.bits_ = bits_ | other.bits_;
    return both;
  }
  bool operator==(const Precisions&) const = default;

 private:
  static constexpr unsigned bit(Precision precision) { return 1u << unsigned(precision); }
  unsigned bits_ = 0;
};

inline constexpr Precisions kHalves{Precision::bf16, Precision::fp16};
// Precisions whose values are stored in fp32, whether or not the factors of products are rounded.
inline constexpr Precisions kStoredInFp32{Precision::fp32, Precision::fp32x3, Precision::tf32};
inline constexpr Precisions kFp64AndFp32 = kStoredInFp32 | Precisions{Precision::fp64};
inline constexpr Precisions kEveryPrecision = kFp64AndFp32 | kHalves;

std::string to_string(Precisions precisions);  // "fp32, tf32"; "every" for all

}  // namespace ridgeline
