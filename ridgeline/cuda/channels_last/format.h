#pragma once

#include <optional>
#include <vector>

#include "ridgeline/plan/kernel.h"

// Images of halves with the channels of a pixel side by side: [n, pixels, channels]. cuDNN computes
// convolutions of halves in this layout, and a thread that normalises eight channels of a pixel
// loads them at once.
namespace ridgeline::cuda {

struct PixelRows {
  int64_t channels = 0, pixels = 0;
};

// Adds the use of a value in "channels_last:64x1024". With one pixel, or one channel, this layout
// is the plain one, and nothing is added.
void use_channels_last(std::vector<FormatUse>& uses, const Value& value, const PixelRows& rows);
std::optional<PixelRows> parse_channels_last(const Format& format);

// The channels and pixels of a value, by an op that says so: one that uses the value itself, as
// elementwise ops do not tell.
std::optional<PixelRows> rows_of(const Program& program, const Value& value);
// Of the first of several values that has such an op.
std::optional<PixelRows> rows_of(const Program& program, const Values& values);

}  // namespace ridgeline::cuda
