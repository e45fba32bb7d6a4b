#include "ridgeline/data/source/image.h"

#include "tests/fuzz/target.h"

using namespace ridgeline;

// PNG or JPEG by content. If an image claims to be large, only its header is read.
FUZZ_TARGET(image) {
  constexpr int64_t kMost = int64_t{1} << 20;
  constexpr uint8_t kPng = 0x89;
  const bool png = !input.empty() && input[0] == kPng;
  const std::span<const std::byte> bytes = fuzz::as_bytes(input);
  fuzz::refused_or_read([&] {
    const auto info = png ? data::png_info(bytes, "image") : data::jpeg_info(bytes, "image");
    if (info && info->height * info->width > kMost) return;
    data::DecodedImage image =
        png ? data::decode_png(bytes, "image") : data::decode_jpeg(bytes, "image");
    fuzz::expect(info.has_value(), "a header where there are pixels");
    fuzz::expect(image.pixels.size() == size_t(info->height * info->width * image.info.channels),
                 "as many pixels as the header says");
    data::set_channels(image, 1);
    data::set_channels(image, 3);
  });
}
