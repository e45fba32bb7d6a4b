#pragma once

#include <string>

#include "ridgeline/ops/value.h"

namespace ridgeline {

// y[n, out] = x[n, in] . w[out, in]^T + b[out]
struct Linear {
  Value x, w, b, y;  // b optional

  int64_t n() const { return x.shape[0]; }
  int64_t in() const { return w.shape[1]; }
  int64_t out() const { return w.shape[0]; }

  static constexpr const char* kName = "linear";
  Values reads() const { return {x, w, b}; }
  Values writes() const { return {y}; }
  std::string attributes() const { return {}; }
  double flops() const { return 2.0 * double(n()) * double(in()) * double(out()); }
  double bytes() const { return size_of(x) + size_of(w) + size_of(b) + size_of(y); }
};

// dx[n, in] = dy[n, out] . w[out, in]
struct LinearGradX {
  Value dy, w, dx;

  int64_t n() const { return dy.shape[0]; }
  int64_t in() const { return w.shape[1]; }
  int64_t out() const { return w.shape[0]; }

  static constexpr const char* kName = "linear_grad_x";
  Values reads() const { return {dy, w}; }
  Values writes() const { return {dx}; }
  std::string attributes() const { return {}; }
  double flops() const { return 2.0 * double(n()) * double(in()) * double(out()); }
  double bytes() const { return size_of(dy) + size_of(w) + size_of(dx); }
};

// dw[out, in] = dy[n, out]^T . x[n, in];  db[out] = sum over n of dy.  Both are written, not added
// to.
struct LinearGradW {
  Value x, dy, dw, db;  // db optional

  int64_t n() const { return x.shape[0]; }
  int64_t in() const { return x.shape[1]; }
  int64_t out() const { return dy.shape[1]; }

  static constexpr const char* kName = "linear_grad_w";
  Values reads() const { return {x, dy}; }
  Values writes() const { return {dw, db}; }
  std::string attributes() const { return {}; }
  double flops() const {
    const double bias = db ? double(n()) * double(out()) : 0.0;
    return 2.0 * double(n()) * double(in()) * double(out()) + bias;
  }
  double bytes() const { return size_of(x) + size_of(dy) + size_of(dw) + size_of(db); }
};

}  // namespace ridgeline
