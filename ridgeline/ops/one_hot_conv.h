#pragma once

#include <fmt/core.h>

#include <string>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// A 1-D convolution over characters, whose one-hot columns are never stored: for each position and
// tap one column of the weights is added.
//   y[i, o, t] = b[o] + sum over u < kernel of w[o, token[i, t + u], u]
// A token that is `symbols` or more (an unknown character, padding) stands for a column of zeros.
struct OneHotConv1d {
  Value token;  // [n, length] int32, not negative
  Value w;      // [out, symbols, kernel]
  Value b;      // [out], optional
  Value y;      // [n, out * steps()]

  int64_t n() const { return token.shape[0]; }
  int64_t length() const { return token.shape[1]; }
  int64_t out() const { return w.shape[0]; }
  int64_t symbols() const { return w.shape[1]; }
  int64_t kernel() const { return w.shape[2]; }
  int64_t steps() const { return length() - kernel() + 1; }

  static constexpr const char* kName = "one_hot_conv1d";
  Values reads() const { return {token, w, b}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return fmt::format("steps={}", steps()); }
  double flops() const { return double(y.shape.numel()) * double(kernel()); }
  double bytes() const { return size_of(token) + size_of(w) + size_of(b) + size_of(y); }
};

// dw[o, s, u] = sum over the (i, t) with token[i, t + u] == s of dy[i, o, t]
// db[o] = sum over (i, t) of dy[i, o, t].  Both are written, not added to.
struct OneHotConv1dGradW {
  Value token, dy;
  Value dw, db;  // db optional

  int64_t n() const { return token.shape[0]; }
  int64_t length() const { return token.shape[1]; }
  int64_t out() const { return dw.shape[0]; }
  int64_t symbols() const { return dw.shape[1]; }
  int64_t kernel() const { return dw.shape[2]; }
  int64_t steps() const { return length() - kernel() + 1; }

  static constexpr const char* kName = "one_hot_conv1d_grad_w";
  Values reads() const { return {token, dy}; }
  Values writes() const { return {dw, db}; }
  std::string attributes() const { return fmt::format("steps={}", steps()); }
  double flops() const { return double(dy.shape.numel()) * (double(kernel()) + (db ? 1.0 : 0.0)); }
  double bytes() const { return size_of(token) + size_of(dy) + size_of(dw) + size_of(db); }
};

}  // namespace ridgeline
