#pragma once

#include <fmt/core.h>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// Ops that join several values into one, where branches of a net meet. One op takes at most this
// many; lowering uses several ops for more.
constexpr size_t kMostJoined = 64;

// y = scale * (xs[0] + xs[1] + ...), element by element, added in this order. A mean has the scale
// 1 / count. The gradient by each x is scale * dy, which is dy itself or an Add of one. A value
// that several ops read has the Add of their gradients as its gradient.
struct Add {
  Values xs;  // 1 to kMostJoined, of one size
  Value y;    // like each of xs
  double scale = 1;

  static constexpr const char* kName = "add";
  Values reads() const { return xs; }
  Values writes() const { return {y}; }
  std::string attributes() const { return scale == 1 ? "" : fmt::format("scale={}", scale); }
  double flops() const {
    return (double(xs.size()) - (scale == 1 ? 1.0 : 0.0)) * double(y.shape.numel());
  }
  double bytes() const { return size_of(xs) + size_of(y); }
};

// y = a * b, element by element. The gradients are Multiply too: da = dy * b, db = dy * a.
struct Multiply {
  Value a, b;  // of one size
  Value y;     // like a

  static constexpr const char* kName = "multiply";
  Values reads() const { return {a, b}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return {}; }
  double flops() const { return double(y.shape.numel()); }
  double bytes() const { return size_of(a) + size_of(b) + size_of(y); }
};

// y[r, :] = xs[0][r, :], xs[1][r, :], ... one after the other. A row is a sample if images are
// joined along their channels, and a timestep if sequences are joined along their features. The
// gradients are Pads, which slice dy.
struct Concat {
  Values xs;         // 1 to kMostJoined, each of rows * its own width
  Value y;           // rows * the sum of the widths
  int64_t rows = 1;  // of the whole batch

  int64_t width(size_t x) const { return xs[x].shape.numel() / rows; }

  static constexpr const char* kName = "concat";
  Values reads() const { return xs; }
  Values writes() const { return {y}; }
  std::string attributes() const { return fmt::format("rows={}", rows); }
  double flops() const { return 0; }
  double bytes() const { return size_of(xs) + size_of(y); }
};

}  // namespace ridgeline
