#pragma once

#include <cstdint>
#include <string_view>

namespace ridgeline::data {

enum class ResizeFilter {
  automatic,  // area if an image shrinks in both directions, else bilinear
  bilinear,
  area,
};
std::string_view name(ResizeFilter filter);

// The form to which every image of a set is converted.
struct ImageOptions {
  int channels = 0;               // 1 or 3; 0: grey if all images are, else colour
  int64_t height = 0, width = 0;  // 0: the size that all images have
  bool choose_size = false;       // if no size is given: as chosen_size() says
  ResizeFilter filter = ResizeFilter::automatic;

  bool operator==(const ImageOptions&) const = default;
};

}  // namespace ridgeline::data
