#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace ridgeline {

// Returns a * b, or throws an Error that names `what`. All sizes from files and configs use this.
int64_t checked_mul(int64_t a, int64_t b, const char* what);
int64_t checked_add(int64_t a, int64_t b, const char* what);

// Extents of a dense row-major array, outermost first. A plain value; no heap.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[size_t(axis)]; }
  int64_t back() const { return dims_[size_t(rank_ - 1)]; }
  std::span<const int64_t> dims() const { return {dims_.data(), size_t(rank_)}; }

  int64_t numel() const;  // 1 for rank 0; checked for overflow at construction

  Shape with(int axis, int64_t extent) const;
  Shape drop_front() const;             // [n, a, b] -> [a, b]
  Shape prepend(int64_t extent) const;  // [a, b] -> [n, a, b]
  Shape flat_from(int axis) const;      // [n, a, b].flat_from(1) -> [n, a*b]

  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

std::string to_string(const Shape& shape);  // "[32, 784]"

}  // namespace ridgeline
