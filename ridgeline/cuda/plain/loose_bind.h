#pragma once

#include "ridgeline/cuda/plain/loose.h"
#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// Whether a value beside `factors` is of the type that their sums are kept in instead.
inline bool loosely_wide(const Value& value, DType factors) {
  return value && value.dtype != factors &&
         value.dtype == (factors == DType::fp64 ? DType::fp64 : DType::fp32);
}

// For refuse_floats: the value, unless it is loosely wide.
inline Value unless_loose(const Value& value, DType factors) {
  return loosely_wide(value, factors) ? Value{} : value;
}

template <typename T>
LooseIn<T> loose_read(const Binding& binding, const Value& value, DType factors) {
  return {binding.read(value).data, loosely_wide(value, factors)};
}

template <typename T>
LooseOut<T> loose_write(const Binding& binding, const Value& value, DType factors) {
  return {binding.write(value).data, loosely_wide(value, factors)};
}

}  // namespace ridgeline::cuda
