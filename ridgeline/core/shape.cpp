#include "ridgeline/core/shape.h"

#include <fmt/ranges.h>

#include "ridgeline/core/error.h"

namespace ridgeline {

int64_t checked_mul(int64_t a, int64_t b, const char* what) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    throw_error(ErrorKind::data, "{}: {} x {} overflows a 64-bit size", what, a, b);
  }
  return result;
}

int64_t checked_add(int64_t a, int64_t b, const char* what) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) {
    throw_error(ErrorKind::data, "{}: {} + {} overflows a 64-bit size", what, a, b);
  }
  return result;
}

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > size_t(kMaxRank)) {
    throw_error(ErrorKind::data, "shape has {} dimensions; at most {} are supported", dims.size(),
                kMaxRank);
  }
  int64_t numel = 1;
  for (const int64_t extent : dims) {
    if (extent < 0) throw_error(ErrorKind::data, "shape has the negative extent {}", extent);
    numel = checked_mul(numel, extent, "shape");
    dims_[size_t(rank_++)] = extent;
  }
}

int64_t Shape::numel() const {
  int64_t numel = 1;
  for (const int64_t extent : dims()) numel *= extent;
  return numel;
}

Shape Shape::with(int axis, int64_t extent) const {
  std::array<int64_t, kMaxRank> dims = dims_;
  dims[size_t(axis)] = extent;
  return Shape(std::span<const int64_t>(dims.data(), size_t(rank_)));
}

Shape Shape::drop_front() const { return Shape(dims().subspan(1)); }

Shape Shape::prepend(int64_t extent) const {
  std::array<int64_t, kMaxRank + 1> dims{extent};
  for (int i = 0; i < rank_; ++i) dims[size_t(i + 1)] = dims_[size_t(i)];
  return Shape(std::span<const int64_t>(dims.data(), size_t(rank_ + 1)));
}

Shape Shape::flat_from(int axis) const {
  std::array<int64_t, kMaxRank + 1> dims{};
  int64_t tail = 1;
  for (int i = 0; i < rank_; ++i) {
    if (i < axis) {
      dims[size_t(i)] = dims_[size_t(i)];
    } else {
      tail = checked_mul(tail, dims_[size_t(i)], "shape");
    }
  }
  dims[size_t(axis)] = tail;
  return Shape(std::span<const int64_t>(dims.data(), size_t(axis + 1)));
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.dims(), ", "));
}

}  // namespace ridgeline
