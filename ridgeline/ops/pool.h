#pragma once

#include <string>

#include "ridgeline/ops/value.h"
#include "ridgeline/ops/window.h"

namespace ridgeline {

// The geometry of a pool and its gradient. Padding is at most half the window's reach, so that
// every window holds a pixel.
struct PoolShape {
  Image in;
  Window window;

  Image out() const { return window.over(in, in.c); }
  double taps() const { return double(in.c) * window.taps(in); }  // of one sample, on the image
  std::string attributes() const {
    return fmt::format("in={},out={},{}", to_string(in), to_string(out()), to_string(window));
  }
  bool operator==(const PoolShape&) const = default;
};

// y[i, c, p, q] = the largest x[i, c, h.at(p, u), w.at(q, v)] of the taps on the image
struct MaxPool {
  Value x, y;  // [n, in.numel()] -> [n, out.numel()]
  PoolShape shape;

  int64_t n() const { return x.shape[0]; }

  static constexpr const char* kName = "max_pool";
  Values reads() const { return {x}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return shape.attributes(); }
  double flops() const { return double(n()) * shape.taps(); }
  double bytes() const { return size_of(x) + size_of(y); }
};

// dx[i, c, r, s] = sum of dy[i, c, p, q] over the windows whose largest x is first reached, row by
// row, at (r, s).  Written, not added to.
// No value holds the positions: a kernel finds them again from x and y. A fused forward kernel that
// knows them may write x in a format of its own that holds only the positions (a byte per window)
// for its own backward kernel; x itself then never reaches memory.
struct MaxPoolGrad {
  Value x, y, dy, dx;
  PoolShape shape;

  int64_t n() const { return x.shape[0]; }

  static constexpr const char* kName = "max_pool_grad";
  Values reads() const { return {x, y, dy}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return shape.attributes(); }
  double flops() const { return double(n()) * shape.taps() + double(dy.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(y) + size_of(dy) + size_of(dx); }
};

// The number of taps that an average divides by.
enum class PoolCount {
  window,  // all of the window, padding too: PyTorch's default (count_include_pad)
  image,   // the taps on the image
};

inline const char* name(PoolCount count) { return count == PoolCount::window ? "window" : "image"; }

// y[i, c, p, q] = (sum of x over the taps on the image) / count.  A global average pool has the
// image as its window.
struct AvgPool {
  Value x, y;
  PoolShape shape;
  PoolCount count = PoolCount::window;

  int64_t n() const { return x.shape[0]; }

  static constexpr const char* kName = "avg_pool";
  Values reads() const { return {x}; }
  Values writes() const { return {y}; }
  std::string attributes() const {
    return fmt::format("{},count={}", shape.attributes(), name(count));
  }
  double flops() const { return double(n()) * shape.taps() + double(y.shape.numel()); }
  double bytes() const { return size_of(x) + size_of(y); }
};

// dx[i, c, r, s] = sum of dy / count over the windows that hold (r, s).  Written, not added to.
struct AvgPoolGrad {
  Value dy, dx;
  PoolShape shape;
  PoolCount count = PoolCount::window;

  int64_t n() const { return dy.shape[0]; }

  static constexpr const char* kName = "avg_pool_grad";
  Values reads() const { return {dy}; }
  Values writes() const { return {dx}; }
  std::string attributes() const {
    return fmt::format("{},count={}", shape.attributes(), name(count));
  }
  double flops() const { return double(n()) * shape.taps() + double(dy.shape.numel()); }
  double bytes() const { return size_of(dy) + size_of(dx); }
};

}  // namespace ridgeline
