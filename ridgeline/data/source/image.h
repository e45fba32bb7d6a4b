#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ridgeline::data {

// The facts in the header of an image.
struct ImageInfo {
  int64_t height = 0, width = 0;
  int channels = 3;  // 1: grey, 3: colour; without transparency
  int bits = 8;      // per channel, as stored
  bool cmyk = false;
};

// The pixels of an image as bytes, [channels][height][width].
struct DecodedImage {
  ImageInfo info;  // channels are those of the pixels
  std::vector<uint8_t> pixels;
};

// A decompression bomb states a size that no photograph has. Pillow warns above 89 megapixels.
constexpr int64_t kMostPixels = 100'000'000;

// Reads the header of a PNG or JPEG file. The bytes may be only the first of the file: returns
// nothing if they end before the header does. Throws Error(data) if it is damaged or states more
// than kMostPixels.
std::optional<ImageInfo> png_info(std::span<const std::byte> bytes, const std::string& file);
std::optional<ImageInfo> jpeg_info(std::span<const std::byte> bytes, const std::string& file);

// Decodes all pixels, in the image's own channels. 16 bits are scaled to 8, palettes looked up,
// transparency dropped and CMYK converted to RGB, like Pillow's convert(). Throws Error(data) for
// any damage, also where libjpeg would fill in grey. The orientation that cameras write (EXIF, of
// JPEG) is applied, here and to the height and width of the header.
DecodedImage decode_png(std::span<const std::byte> bytes, const std::string& file);
DecodedImage decode_jpeg(std::span<const std::byte> bytes, const std::string& file);

// Throws Error(data) if there is no pixel, or more than kMostPixels.
void check_image_size(const ImageInfo& info, const std::string& file);

// Converts [pixels][channels] to [channels][pixels].
std::vector<uint8_t> to_planes(std::vector<uint8_t> interleaved, size_t channels);

// Reads PNG or JPEG, by content. Throws Error(data) for anything else, named by its kind.
ImageInfo read_image_info(const std::filesystem::path& path);
DecodedImage read_image(const std::filesystem::path& path);

// Colour becomes grey by ITU-R 601-2 luma, in Pillow's integers; grey becomes three equal
// channels.
void set_channels(DecodedImage& image, int channels);

}  // namespace ridgeline::data
