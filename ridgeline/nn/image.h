#pragma once

#include <fmt/format.h>

#include "ridgeline/core/error.h"
#include "ridgeline/core/shape.h"
#include "ridgeline/nn/config_table.h"
#include "ridgeline/ops/window.h"

namespace ridgeline::nn {

// The number of axes that a window slides along: two for conv2d and similar layers, one for conv1d
// and similar layers.
enum class Axes { one = 1, two = 2 };

// One sample as an image: [c, h, w], or [h, w] of one channel; along one axis [c, w], or [w] of one
// channel. Throws Error(usage) for any other shape.
inline Image as_image(const Shape& input, Axes axes) {
  const int rank = input.rank();
  if (axes == Axes::two && rank == 3) return {input[0], input[1], input[2]};
  if (axes == Axes::two && rank == 2) return {1, input[0], input[1]};
  if (axes == Axes::one && rank == 2) return {input[0], 1, input[1]};
  if (axes == Axes::one && rank == 1) return {1, 1, input[0]};
  throw_error(ErrorKind::usage, "takes samples {}, not {}",
              axes == Axes::two ? "[channels, height, width] or [height, width]"
                                : "[channels, length] or [length]",
              to_string(input));
}

inline Shape as_shape(const Image& image, Axes axes) {
  return axes == Axes::two ? Shape{image.c, image.h, image.w} : Shape{image.c, image.w};
}

// Reads kernel, stride, padding and, with `dilated`, dilation of a layer: a number, or one per
// axis. `stride` is the default; 0 means the kernel's size.
inline Window read_window(ConfigTable& table, Axes axes, int64_t stride, bool dilated) {
  constexpr int64_t kMost = 4096;
  const auto read = [&](const char* key, std::optional<int64_t> fallback, int64_t least) {
    return table.integers(key, size_t(axes), fallback, {least, kMost});
  };
  const auto kernel = read("kernel", std::nullopt, 1);
  const auto strides = stride == 0 && !table.has("stride") ? kernel : read("stride", stride, 1);
  const auto pad = read("padding", 0, 0);
  const auto dilation = dilated ? read("dilation", 1, 1) : std::vector<int64_t>(size_t(axes), 1);
  const auto slide = [&](size_t i) { return Slide{kernel[i], strides[i], pad[i], dilation[i]}; };
  return axes == Axes::two ? Window{slide(0), slide(1)} : Window{{}, slide(0)};
}

// "kernel = [5, 5], stride = [1, 1], padding = [2, 2]"
inline std::string to_toml(const Window& window, Axes axes, bool dilated) {
  const auto pair = [&](int64_t h, int64_t w) {
    return axes == Axes::two ? fmt::format("[{}, {}]", h, w) : fmt::format("{}", w);
  };
  const Slide &h = window.h, &w = window.w;
  std::string text = fmt::format("kernel = {}, stride = {}, padding = {}", pair(h.kernel, w.kernel),
                                 pair(h.stride, w.stride), pair(h.pad, w.pad));
  if (dilated) text += fmt::format(", dilation = {}", pair(h.dilation, w.dilation));
  return text;
}

// Returns the output image of `window` over `in`; throws Error(usage) if the window does not fit.
inline Image slide_over(const Window& window, const Image& in, int64_t channels, Axes axes) {
  const Image out = window.over(in, channels);
  if (out.h >= 1 && out.w >= 1) return out;
  const auto size = [&](int64_t h, int64_t w) {
    return axes == Axes::two ? fmt::format("{}x{}", h, w) : fmt::format("{}", w);
  };
  throw_error(ErrorKind::usage,
              "a window of {} does not fit an image of {} with padding {}; make the kernel smaller "
              "or the padding larger",
              size(window.h.reach(), window.w.reach()), size(in.h, in.w),
              size(window.h.pad, window.w.pad));
}

}  // namespace ridgeline::nn
