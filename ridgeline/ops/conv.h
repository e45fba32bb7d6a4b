#pragma once

#include <string>

#include "ridgeline/ops/value.h"
#include "ridgeline/ops/window.h"

namespace ridgeline {

// The geometry that a convolution and its gradients share. Group g connects the input channels
// [g*c/groups, (g+1)*c/groups) to the output channels [g*k/groups, (g+1)*k/groups).
struct Conv2dShape {
  Image in;
  int64_t k = 1;  // output channels
  Window window;
  int64_t groups = 1;

  Image out() const { return window.over(in, k); }
  int64_t group_in() const { return in.c / groups; }
  int64_t group_out() const { return k / groups; }
  Shape weight() const { return {k, group_in(), window.h.kernel, window.w.kernel}; }

  // Multiply-adds of one sample with elements of the image; those with padding need not be done.
  double products() const { return double(k) * double(group_in()) * window.taps(in); }
  std::string attributes() const {
    return fmt::format("in={},out={},{},groups={}", to_string(in), to_string(out()),
                       to_string(window), groups);
  }
  bool operator==(const Conv2dShape&) const = default;
};

// y[i, o, p, q] = b[o] + sum over (c, u, v) of x[i, c, h.at(p, u), w.at(q, v)] * w[o, c, u, v]
// with c over the channels of o's group and x zero outside the image (a cross-correlation, as in
// other libraries). A Conv1d is a Conv2d of height 1.
struct Conv2d {
  Value x;  // [n, in.numel()]
  Value w;  // [k, c/groups, kernel h, kernel w]; a conv1d has no axis for the height: use `shape`
  Value b;  // [k], optional
  Value y;  // [n, out.numel()]
  Conv2dShape shape;

  int64_t n() const { return x.shape[0]; }

  static constexpr const char* kName = "conv2d";
  Values reads() const { return {x, w, b}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return shape.attributes(); }
  double flops() const { return 2.0 * double(n()) * shape.products(); }
  double bytes() const { return size_of(x) + size_of(w) + size_of(b) + size_of(y); }
};

// dx[i, c, r, s] = sum over (o, p, q, u, v) with (r, s) = (h.at(p, u), w.at(q, v)) of
//                  dy[i, o, p, q] * w[o, c, u, v].  Written, not added to.
struct Conv2dGradX {
  Value dy, w, dx;
  Conv2dShape shape;

  int64_t n() const { return dy.shape[0]; }

  static constexpr const char* kName = "conv2d_grad_x";
  Values reads() const { return {dy, w}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return shape.attributes(); }
  double flops() const { return 2.0 * double(n()) * shape.products(); }
  double bytes() const { return size_of(dy) + size_of(w) + size_of(dx); }
};

// dw[o, c, u, v] = sum over (i, p, q) of dy[i, o, p, q] * x[i, c, h.at(p, u), w.at(q, v)]
// db[o] = sum over (i, p, q) of dy[i, o, p, q].  Both are written, not added to.
struct Conv2dGradW {
  Value x, dy, dw, db;  // db optional
  Conv2dShape shape;

  int64_t n() const { return x.shape[0]; }

  static constexpr const char* kName = "conv2d_grad_w";
  Values reads() const { return {x, dy}; }
  Values writes() const { return {dw, db}; }
  std::string attributes() const { return shape.attributes(); }
  double flops() const {
    const double bias = db ? double(dy.shape.numel()) : 0.0;
    return 2.0 * double(n()) * shape.products() + bias;
  }
  double bytes() const { return size_of(x) + size_of(dy) + size_of(dw) + size_of(db); }
};

}  // namespace ridgeline
