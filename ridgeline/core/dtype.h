#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ridgeline/core/dtype_enum.h"
#include "ridgeline/core/error.h"
#include "ridgeline/core/half.h"

namespace ridgeline {

std::string_view name(DType dtype);

// Half an ulp at 1: the worst relative error of rounding to `dtype`.
double unit_roundoff(DType dtype);

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) return DType::fp64;
  if constexpr (std::is_same_v<T, float>) return DType::fp32;
  if constexpr (std::is_same_v<T, Bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, Fp16>) return DType::fp16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::int32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::int64;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::uint8;
}

// Calls f(T{}) with the C++ type of a float dtype, with `Brain` and `Half` for bf16 and fp16:
// dispatch happens once, when a kernel is prepared.
template <typename Brain, typename Half, typename F>
decltype(auto) dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::fp64:
      return f(double{});
    case DType::fp32:
      return f(float{});
    case DType::bf16:
      return f(Brain{});
    case DType::fp16:
      return f(Half{});
    default:
      throw_error(ErrorKind::usage, "{} is not a floating-point type", name(dtype));
  }
}
template <typename F>
decltype(auto) dispatch_float(DType dtype, F&& f) {
  return dispatch_float<Bf16, Fp16>(dtype, std::forward<F>(f));
}

}  // namespace ridgeline
