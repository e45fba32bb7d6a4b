#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace ridgeline {

// Images in a program are values [n, c*h*w]: one sample per row, flattened as NCHW ("plain"), so
// that linear and element-wise ops can read them directly. The ops below carry what the flat shape
// does not say. Channels-last and blocked layouts are formats (plan/kernel.h) between kernels.

// One sample: c channels of h rows and w columns. A 1-D signal is an image of height 1.
struct Image {
  int64_t c = 1, h = 1, w = 1;

  int64_t pixels() const { return h * w; }
  int64_t numel() const { return c * h * w; }
  bool operator==(const Image&) const = default;
};

// One axis of a sliding window: tap k of output o lies at o*stride - pad + k*dilation. `pad` is
// added on both sides.
struct Slide {
  int64_t kernel = 1, stride = 1, pad = 0, dilation = 1;

  int64_t reach() const { return dilation * (kernel - 1) + 1; }  // from the first tap to the last
  // The number of outputs over `extent` inputs, rounded down as in PyTorch (ceil_mode off); below
  // 1: no fit.
  int64_t outputs(int64_t extent) const {
    const int64_t last = extent + 2 * pad - reach();
    return last < 0 ? 0 : last / stride + 1;
  }
  int64_t at(int64_t output, int64_t tap) const { return output * stride - pad + tap * dilation; }
  // The number of taps of all outputs that lie on the input, not on its padding.
  int64_t taps(int64_t extent) const {
    int64_t count = 0;
    for (int64_t o = 0; o < outputs(extent); ++o) {
      for (int64_t k = 0; k < kernel; ++k) count += at(o, k) >= 0 && at(o, k) < extent;
    }
    return count;
  }
  bool operator==(const Slide&) const = default;
};

// A window over h and w.
struct Window {
  Slide h, w;

  Image over(const Image& in, int64_t channels) const {
    return {channels, h.outputs(in.h), w.outputs(in.w)};
  }
  // Taps over one channel, see Slide::taps.
  double taps(const Image& in) const { return double(h.taps(in.h)) * double(w.taps(in.w)); }
  bool operator==(const Window&) const = default;
};

inline std::string to_string(const Image& in) { return fmt::format("{}x{}x{}", in.c, in.h, in.w); }

// "kernel=5x5,stride=1x1,pad=2x2,dilation=1x1"
inline std::string to_string(const Window& window) {
  return fmt::format("kernel={}x{},stride={}x{},pad={}x{},dilation={}x{}", window.h.kernel,
                     window.w.kernel, window.h.stride, window.w.stride, window.h.pad, window.w.pad,
                     window.h.dilation, window.w.dilation);
}

}  // namespace ridgeline
