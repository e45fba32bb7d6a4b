#include "ridgeline/data/image_options.h"

#include <array>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::data {

std::string_view name(ResizeFilter filter) {
  constexpr std::array<std::string_view, 3> kNames{"automatic", "bilinear", "area"};
  return kNames[size_t(filter)];
}

ResizeFilter parse_resize_filter(std::string_view text) {
  for (const auto filter : {ResizeFilter::automatic, ResizeFilter::bilinear, ResizeFilter::area}) {
    if (text == name(filter)) return filter;
  }
  throw_error(ErrorKind::usage, "{} is not a way to resize; use automatic, bilinear or area",
              quote(text));
}

}  // namespace ridgeline::data
