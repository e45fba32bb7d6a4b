#pragma once

#include <string>

#include "ridgeline/nn/builder.h"
#include "ridgeline/nn/config_table.h"

// Functions that the normalisation layers share.
namespace ridgeline::nn {

inline double read_norm_epsilon(ConfigTable& table) {
  return table.number("eps", 1e-5, {kPositive, 1.0});
}

// The last `dims` dimensions of a sample, or all of them for 0.
inline Shape last_dims(const Shape& input, int64_t dims) {
  if (dims == 0) return input;
  if (dims > input.rank()) {
    throw_error(ErrorKind::usage, "cannot normalise the last {} dimensions of {}", dims,
                to_string(input));
  }
  return Shape(input.dims().last(size_t(dims)));
}

// A mean or a reciprocal deviation: fp64 for fp64 values, fp32 for all narrower ones.
inline Value norm_statistic(Builder& builder, const char* what, int layer, int64_t count) {
  const DType dtype = builder.dtype() == DType::fp64 ? DType::fp64 : DType::fp32;
  return builder.temp(std::string(what) + std::to_string(layer), dtype, {count});
}

}  // namespace ridgeline::nn
