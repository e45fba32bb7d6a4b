#pragma once

#include <cstdint>
#include <vector>

#include "ridgeline/core/dtype.h"
#include "ridgeline/core/shape.h"

namespace ridgeline {

using ValueId = int32_t;

// A numbered array of a program that an op reads or writes. An absent optional operand (a layer
// without bias) is a Value whose id is -1.
struct Value {
  ValueId id = -1;
  DType dtype = DType::fp32;
  Shape shape;

  explicit operator bool() const { return id >= 0; }
};

using Values = std::vector<Value>;

inline double size_of(const Value& value) {
  return value ? double(value.shape.numel()) * double(size_of(value.dtype)) : 0.0;
}

inline double size_of(const Values& values) {
  double bytes = 0;
  for (const Value& value : values) bytes += size_of(value);
  return bytes;
}

}  // namespace ridgeline
