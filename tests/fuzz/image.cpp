#include "ridgeline/data/source/image.h"

#include "tests/fuzz/target.h"

using namespace ridgeline;

// PNG or JPEG by content. An image that states to be large is left at its header.
FUZZ_TARGET(image) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const std::filesystem::path file = fuzz::as_file(input);
  fuzz::refused_or_read([&] {
    const data::ImageInfo info = data::read_image_info(file);
    if (info.height * info.width > kMost) return;
    data::DecodedImage image = data::read_image(file);
    fuzz::expect(image.pixels.size() == size_t(info.height * info.width * image.info.channels),
                 "as many pixels as the header says");
    data::set_channels(image, 1);
    data::set_channels(image, 3);
  });
}
