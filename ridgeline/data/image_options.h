#pragma once

#include <cstdint>
#include <string_view>

namespace ridgeline::data {

enum class ResizeFilter {
  automatic,  // area where an image shrinks in both directions, else bilinear
  bilinear,
  area,
};
std::string_view name(ResizeFilter filter);
ResizeFilter parse_resize_filter(std::string_view text);  // throws usage

// What every image of a set is converted to.
struct ImageOptions {
  int channels = 0;               // 1 or 3; 0: grey if all images are, else colour
  int64_t height = 0, width = 0;  // 0: the size that all images have
  ResizeFilter filter = ResizeFilter::automatic;

  bool operator==(const ImageOptions&) const = default;
};

}  // namespace ridgeline::data
