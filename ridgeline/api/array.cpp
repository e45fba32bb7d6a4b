#include "ridgeline/api/array.h"

#include "ridgeline/core/error.h"
#include "ridgeline/core/shape.h"

namespace ridgeline {
namespace {

// Checks that the elements match the shape, so that no view extends past the end of memory.
std::vector<int64_t> checked(std::vector<int64_t> shape, size_t elements) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0) throw_error(ErrorKind::usage, "an array has an extent of {}", extent);
    count = checked_mul(count, extent, "the elements of an array");
  }
  if (size_t(count) != elements) {
    throw_error(ErrorKind::usage, "an array of {} elements was given a shape of {}", elements,
                count);
  }
  return shape;
}

}  // namespace

Array::Array(std::span<const uint8_t> values, std::vector<int64_t> extents)
    : data(values.data()),
      type(ArrayType::uint8),
      shape(checked(std::move(extents), values.size())) {}
Array::Array(std::span<const int32_t> values, std::vector<int64_t> extents)
    : data(values.data()),
      type(ArrayType::int32),
      shape(checked(std::move(extents), values.size())) {}
Array::Array(std::span<const int64_t> values, std::vector<int64_t> extents)
    : data(values.data()),
      type(ArrayType::int64),
      shape(checked(std::move(extents), values.size())) {}
Array::Array(std::span<const float> values, std::vector<int64_t> extents)
    : data(values.data()),
      type(ArrayType::float32),
      shape(checked(std::move(extents), values.size())) {}
Array::Array(std::span<const double> values, std::vector<int64_t> extents)
    : data(values.data()),
      type(ArrayType::float64),
      shape(checked(std::move(extents), values.size())) {}

namespace api {

DType dtype_of(ArrayType type) {
  switch (type) {
    case ArrayType::uint8:
      return DType::uint8;
    case ArrayType::int32:
      return DType::int32;
    case ArrayType::int64:
      return DType::int64;
    case ArrayType::float32:
      return DType::fp32;
    case ArrayType::float64:
      return DType::fp64;
  }
  throw_error(ErrorKind::usage, "an array of an unknown type");
}

Tensor tensor_of(const Array& array, const char* what) {
  if (array.data == nullptr || array.shape.empty() || array.shape.front() < 1) {
    throw_error(ErrorKind::usage, "{}: the array holds no samples", what);
  }
  if (array.shape.size() > size_t(Shape::kMaxRank)) {
    throw_error(ErrorKind::usage, "{}: an array of {} dimensions; at most {} are known", what,
                array.shape.size(), Shape::kMaxRank);
  }
  const Device device = array.gpu < 0 ? Device{} : Device{DeviceKind::cuda, array.gpu};
  return {const_cast<void*>(array.data), dtype_of(array.type), Shape(array.shape), device};
}

}  // namespace api
}  // namespace ridgeline
