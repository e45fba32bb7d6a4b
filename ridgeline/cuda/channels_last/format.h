#pragma once

#include <optional>
#include <vector>

#include "ridgeline/plan/kernel.h"

// Half-precision images with the channels of each pixel adjacent: [n, pixels, channels]. cuDNN
// computes half-precision convolutions in this layout, and a thread that normalises can load eight
// channels of a pixel at once.
namespace ridgeline::cuda {

struct PixelRows {
  int64_t channels = 0, pixels = 0;
};

// Adds a use of the value in the format "channels_last:64x1024" (channels x pixels). With one pixel
// or one channel this layout equals the plain one, and nothing is added.
void use_channels_last(std::vector<FormatUse>& uses, const Value& value, const PixelRows& rows);
std::optional<PixelRows> parse_channels_last(const Format& format);

// The channels and pixels of a value, taken from an op that uses the value and states its image
// shape (element-wise ops do not).
std::optional<PixelRows> rows_of(const Program& program, const Value& value);
// Returns those of the first of several values for which there is such an op.
std::optional<PixelRows> rows_of(const Program& program, const Values& values);

}  // namespace ridgeline::cuda
