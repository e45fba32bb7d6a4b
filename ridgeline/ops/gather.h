#pragma once

#include <fmt/core.h>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// Gathers one batch out of a resident set, by the epoch's order:
//   y[i, ...] = set[order[first + tick*n + i], ...] * scale + shift      (bytes -> float)
//   y[i, ...] = set[order[first + tick*n + i], ...]     (int32 labels, or bytes as int32 tokens)
//   y[i, ...] = set[order[first + tick*n + i], ...]     (floats, rounded to y's type)
struct Gather {
  Value set;    // [N, ...] uint8, int32 or fp32
  Value order;  // [M] int32, sample numbers of the set
  Value first;  // [1] int64, where in `order` the first batch of this launch begins
  Value tick;   // [1] int32, batches since then
  Value y;      // [n, ...] float or int32 for uint8 sets, int32 for int32 sets, float for fp32 sets
  double scale = 1, shift = 0;  // of uint8 sets; 1 and 0 for all others

  static constexpr const char* kName = "gather";
  Values reads() const { return {set, order, first, tick}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return fmt::format("scale={},shift={}", scale, shift); }
  double flops() const {
    return set.dtype == DType::uint8 && is_float(y.dtype) ? 2.0 * double(y.shape.numel()) : 0.0;
  }
  // Only the batch's samples of the set are read.
  double bytes() const {
    return double(y.shape.numel()) * double(size_of(set.dtype)) + double(y.shape[0]) * 4 +
           size_of(y);
  }
};

}  // namespace ridgeline
