#include "ridgeline/data/source/image.h"

#include <algorithm>

#include "ridgeline/core/error.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/source/array_file.h"
#include "ridgeline/data/source/detect.h"

namespace ridgeline::data {
namespace {

constexpr int64_t kMostFile = int64_t{1} << 30;
constexpr int64_t kFirst = 32 << 10;  // most headers end here; a JPEG may have much before its own

std::vector<std::byte> first_bytes(const InputFile& file, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(file.size(), count)));
  read_at(file, 0, bytes);
  return bytes;
}

bool is_png(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  const std::span<const uint8_t> first(reinterpret_cast<const uint8_t*>(bytes.data()),
                                       bytes.size());
  const Content content = detect(first, int64_t(bytes.size()));
  if (content == Content::png || content == Content::jpeg) return content == Content::png;
  refuse_content(path, {content, false}, "a PNG or JPEG image");
}

void check_file_size(const InputFile& file) {
  if (file.size() <= kMostFile) return;
  throw_error(ErrorKind::data, "{}: has {} bytes; images of at most {} are read", file.name(),
              file.size(), kMostFile);
}

}  // namespace

void check_image_size(const ImageInfo& info, const std::string& file) {
  if (info.height > 0 && info.width > 0 && info.width <= kMostPixels / info.height) return;
  throw_error(ErrorKind::data, "{}: states {} x {} pixels; images of 1 to {} are read", file,
              info.width, info.height, kMostPixels);
}

std::vector<uint8_t> to_planes(std::vector<uint8_t> interleaved, size_t channels) {
  if (channels == 1) return interleaved;
  const size_t plane = interleaved.size() / channels;
  std::vector<uint8_t> planes(interleaved.size());
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = 0; i < plane; ++i) planes[c * plane + i] = interleaved[i * channels + c];
  }
  return planes;
}

ImageInfo read_image_info(const std::filesystem::path& path) {
  const InputFile file(path);
  check_file_size(file);
  std::vector<std::byte> bytes = first_bytes(file, kFirst);
  const bool png = is_png(bytes, path);
  for (;;) {
    const auto info = png ? png_info(bytes, file.name()) : jpeg_info(bytes, file.name());
    if (info) return *info;
    if (int64_t(bytes.size()) == file.size()) {
      throw_error(ErrorKind::data, "{}: truncated image: ends inside its header; get it again",
                  file.name());
    }
    bytes = first_bytes(file, file.size());
  }
}

DecodedImage read_image(const std::filesystem::path& path) {
  const InputFile file(path);
  check_file_size(file);
  const std::vector<std::byte> bytes = first_bytes(file, file.size());
  return is_png(bytes, path) ? decode_png(bytes, file.name()) : decode_jpeg(bytes, file.name());
}

void set_channels(DecodedImage& image, int channels) {
  if (image.info.channels == channels) return;
  const auto plane = size_t(image.info.height * image.info.width);
  if (channels == 1) {
    const uint8_t *r = image.pixels.data(), *g = r + plane, *b = g + plane;
    std::vector<uint8_t> grey(plane);
    for (size_t i = 0; i < plane; ++i) {
      grey[i] = uint8_t((r[i] * 19595u + g[i] * 38470u + b[i] * 7471u + 0x8000u) >> 16);
    }
    image.pixels = std::move(grey);
  } else {
    image.pixels.resize(3 * plane);
    std::copy_n(image.pixels.begin(), plane, image.pixels.begin() + ptrdiff_t(plane));
    std::copy_n(image.pixels.begin(), plane, image.pixels.begin() + 2 * ptrdiff_t(plane));
  }
  image.info.channels = channels;
}

}  // namespace ridgeline::data
