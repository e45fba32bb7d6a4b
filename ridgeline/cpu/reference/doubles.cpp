#include "ridgeline/cpu/reference/doubles.h"

#include <bit>
#include <cmath>

namespace ridgeline::cpu {
namespace {

// Inexact results get an odd last bit: toward zero, then the bit set.
float round_to_odd(double value) {
  const float nearest = float(value);
  if (double(nearest) == value || !std::isfinite(nearest)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(double(nearest)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

double widen(double value) { return value; }
double widen(float value) { return value; }
double widen(Bf16 value) { return float(value); }
double widen(Fp16 value) { return float(value); }

}  // namespace

template <>
double round_to<double>(double value) {
  return value;
}
template <>
float round_to<float>(double value) {
  return float(value);
}
template <>
Bf16 round_to<Bf16>(double value) {
  return Bf16(round_to_odd(value));
}
template <>
Fp16 round_to<Fp16>(double value) {
  return Fp16(round_to_odd(value));
}

void Doubles::load() {
  if (!*this) return;
  dispatch_float(tensor_.dtype, [&](auto type) {
    const auto* from = tensor_.as<const decltype(type)>();
    for (int64_t i = 0; i < size_; ++i) values_[i] = widen(from[i]);
  });
}

void Doubles::store() {
  if (!*this) return;
  dispatch_float(tensor_.dtype, [&](auto type) {
    using T = decltype(type);
    T* to = tensor_.as<T>();
    for (int64_t i = 0; i < size_; ++i) to[i] = round_to<T>(values_[i]);
  });
}

}  // namespace ridgeline::cpu
