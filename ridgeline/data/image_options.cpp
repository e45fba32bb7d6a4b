#include "ridgeline/data/image_options.h"

#include <array>

namespace ridgeline::data {

std::string_view name(ResizeFilter filter) {
  constexpr std::array<std::string_view, 3> kNames{"automatic", "bilinear", "area"};
  return kNames[size_t(filter)];
}

}  // namespace ridgeline::data
