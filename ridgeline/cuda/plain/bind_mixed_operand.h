#pragma once

#include "ridgeline/cuda/plain/mixed_operand.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Whether a value beside `factors` has their accumulator dtype instead of their own.
inline bool is_mixed(const Value& value, DType factors) {
  return value && value.dtype != factors &&
         value.dtype == (factors == DType::fp64 ? DType::fp64 : DType::fp32);
}

// The value, or none if it is mixed; for refuse_floats.
inline Value unless_mixed(const Value& value, DType factors) {
  return is_mixed(value, factors) ? Value{} : value;
}

template <typename T>
MixedIn<T> read_mixed(const Binding& binding, const Value& value, DType factors) {
  return {binding.read(value).data, is_mixed(value, factors)};
}

template <typename T>
MixedOut<T> write_mixed(const Binding& binding, const Value& value, DType factors) {
  return {binding.write(value).data, is_mixed(value, factors)};
}

}  // namespace ridgeline::cuda
