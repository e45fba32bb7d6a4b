#pragma once

#include <fmt/core.h>

#include <array>

#include "ridgeline/core/philox.h"
#include "ridgeline/ops/value.h"
#include "ridgeline/ops/window.h"

namespace ridgeline {

// Ops that move the elements of each sample to other positions.

// y[n, i, j, k] = x[n, i - before[0], j - before[1], k - before[2]], or `value` where x has no such
// element. A negative `before` cuts off, so that this op is also a slice. The gradient is a Pad
// with in and out exchanged, the other sign of `before` and zeros.
struct Pad {
  Value x;                          // [n, product of in]
  Value y;                          // [n, product of out]
  std::array<int64_t, 3> in, out;   // extents of a sample, the last one contiguous
  std::array<int64_t, 3> before{};  // elements put in front along each axis
  double value = 0;

  int64_t n() const { return x.shape[0]; }

  static constexpr const char* kName = "pad";
  Values reads() const { return {x}; }
  Values writes() const { return {y}; }
  std::string attributes() const {
    return fmt::format("in={}x{}x{},out={}x{}x{},before={},{},{},value={}", in[0], in[1], in[2],
                       out[0], out[1], out[2], before[0], before[1], before[2], value);
  }
  double flops() const { return 0; }
  // Only the elements of x that y takes are read.
  double bytes() const {
    double kept = 1;
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t begin = before[axis] > 0 ? before[axis] : 0;
      const int64_t end = in[axis] + before[axis] < out[axis] ? in[axis] + before[axis] : out[axis];
      kept *= end > begin ? double(end - begin) : 0.0;
    }
    return kept * double(n()) * double(size_of(x.dtype)) + size_of(y);
  }
};

// Permutes the axes of each sample: axis a of y is axis axes[a] of x. The gradient is a Transpose
// by the inverse permutation.
struct Transpose {
  static constexpr int kAxes = Shape::kMaxRank - 1;

  Value x;                        // [n, product of in]
  Value y;                        // like x
  Shape in;                       // of a sample of x
  std::array<int, kAxes> axes{};  // the first in.rank() count

  int64_t n() const { return x.shape[0]; }
  // The extent of y's axis a, and the stride of its elements in x.
  int64_t extent(int a) const { return in[axes[size_t(a)]]; }
  int64_t stride(int a) const {
    int64_t step = 1;
    for (int later = axes[size_t(a)] + 1; later < in.rank(); ++later) step *= in[later];
    return step;
  }

  static constexpr const char* kName = "transpose";
  Values reads() const { return {x}; }
  Values writes() const { return {y}; }
  std::string attributes() const {
    std::string order;
    for (int a = 0; a < in.rank(); ++a) order += fmt::format("{}", axes[size_t(a)]);
    return fmt::format("in={},axes={}", to_string(in), order);
  }
  double flops() const { return 0; }
  double bytes() const { return size_of(x) + size_of(y); }
};

enum class UpsampleMode { nearest, bilinear };

// Enlarges images by whole factors: y[n, c, i, j] comes from x around [i / factor_h, j / factor_w].
// nearest takes the element there. bilinear interpolates between the four elements around
// ((i + 0.5) / factor_h - 0.5, (j + 0.5) / factor_w - 0.5), clamped to the edge (PyTorch's
// align_corners = False).
struct UpsampleShape {
  Image in;
  int64_t factor_h = 1, factor_w = 1;
  UpsampleMode mode = UpsampleMode::nearest;

  Image out() const { return {in.c, in.h * factor_h, in.w * factor_w}; }

  // The source of output position i of an axis: low with weight 1 - part, low + 1 (or the edge)
  // with weight part.
  struct Source {
    int64_t low, high;
    double part;
  };
  RIDGELINE_HD static Source source(int64_t i, int64_t factor, int64_t extent, UpsampleMode mode) {
    if (mode == UpsampleMode::nearest) return {i / factor, i / factor, 0.0};
    double place = (double(i) + 0.5) / double(factor) - 0.5;
    if (place < 0) place = 0;
    const int64_t low = int64_t(place);
    return {low, low + 1 < extent ? low + 1 : extent - 1, place - double(low)};
  }
};

inline std::string to_string(const UpsampleShape& shape) {
  return fmt::format("in={},factor={}x{},{}", to_string(shape.in), shape.factor_h, shape.factor_w,
                     shape.mode == UpsampleMode::nearest ? "nearest" : "bilinear");
}

struct Upsample {
  Value x;  // [n, in.numel()]
  Value y;  // [n, out().numel()]
  UpsampleShape shape;

  int64_t n() const { return x.shape[0]; }

  static constexpr const char* kName = "upsample";
  Values reads() const { return {x}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return to_string(shape); }
  double flops() const {
    return shape.mode == UpsampleMode::nearest ? 0.0 : 6.0 * double(y.shape.numel());
  }
  double bytes() const { return size_of(x) + size_of(y); }
};

// dx = the sum of dy over the elements that came from x's, each with the weight it had. Written,
// not added to.
struct UpsampleGrad {
  Value dy, dx;
  UpsampleShape shape;

  int64_t n() const { return dx.shape[0]; }

  static constexpr const char* kName = "upsample_grad";
  Values reads() const { return {dy}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return to_string(shape); }
  double flops() const {
    return (shape.mode == UpsampleMode::nearest ? 1.0 : 8.0) * double(dy.shape.numel());
  }
  double bytes() const { return size_of(dy) + size_of(dx); }
};

}  // namespace ridgeline
