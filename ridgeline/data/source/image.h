#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ridgeline::data {

// What the header of an image says.
struct ImageInfo {
  int64_t height = 0, width = 0;
  int channels = 3;  // 1: grey, 3: colour; transparency is not counted
  int bits = 8;      // a channel, as stored
  bool cmyk = false;
};

// The pixels of an image as bytes, [channels][height][width].
struct DecodedImage {
  ImageInfo info;  // channels are those of the pixels
  std::vector<uint8_t> pixels;
};

// A decompression bomb states a size that no photograph has. Pillow warns above 89 megapixels.
constexpr int64_t kMostPixels = 100'000'000;

// Of a PNG or JPEG file. The bytes may be the first of the file alone: nothing where they end
// before the header does. Throws data when it is damaged or states more than kMostPixels.
std::optional<ImageInfo> png_info(std::span<const std::byte> bytes, const std::string& file);
std::optional<ImageInfo> jpeg_info(std::span<const std::byte> bytes, const std::string& file);

// All pixels, in the image's own channels. 16 bits are scaled to 8, palettes looked up,
// transparency dropped and CMYK converted to RGB, as Pillow's convert() does. Throws data on any
// damage: what libjpeg would patch with grey is an error here.
DecodedImage decode_png(std::span<const std::byte> bytes, const std::string& file);
DecodedImage decode_jpeg(std::span<const std::byte> bytes, const std::string& file);

// Throws data when there is no pixel, or more than kMostPixels.
void check_image_size(const ImageInfo& info, const std::string& file);

// [pixels][channels] as [channels][pixels].
std::vector<uint8_t> to_planes(std::vector<uint8_t> interleaved, size_t channels);

// PNG or JPEG, by content. Throws data for anything else, named by what it is.
ImageInfo read_image_info(const std::filesystem::path& path);
DecodedImage read_image(const std::filesystem::path& path);

// Colour becomes grey by ITU-R 601-2 luma, in Pillow's whole numbers; grey becomes three equal
// channels.
void set_channels(DecodedImage& image, int channels);

}  // namespace ridgeline::data
