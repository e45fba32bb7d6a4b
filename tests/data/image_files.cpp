#include "tests/data/image_files.h"

#include <zlib.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
// After the headers that it wants.
#include <jpeglib.h>

#include "tests/data/files.h"

namespace ridgeline::data::testing {
namespace {

std::string packed(const std::string& bytes) {
  uLongf size = compressBound(uLong(bytes.size()));
  std::string out(size, '\0');
  if (compress(reinterpret_cast<Bytef*>(out.data()), &size,
               reinterpret_cast<const Bytef*>(bytes.data()), uLong(bytes.size())) != Z_OK) {
    throw std::runtime_error("compress");
  }
  out.resize(size);
  return out;
}

// The rows of the pixels (x0 + i * dx, y0 + j * dy), each after its filter type, none.
std::string rows(uint32_t width, uint32_t height, int sample_bits, int samples,
                 const std::string& bytes, uint32_t x0 = 0, uint32_t y0 = 0, uint32_t dx = 1,
                 uint32_t dy = 1) {
  std::string result;
  const size_t pixel = size_t(samples) * (sample_bits == 16 ? 2 : 1);
  for (uint32_t y = y0; y < height; y += dy) {
    if (x0 >= width) continue;
    result += '\0';
    uint8_t gathered = 0;
    int used = 0;
    for (uint32_t x = x0; x < width; x += dx) {
      const std::string value = bytes.substr((size_t{y} * width + x) * pixel, pixel);
      if (sample_bits >= 8) {
        result += value;
        continue;
      }
      gathered = uint8_t(gathered << sample_bits | uint8_t(value[0]));
      used += sample_bits;
      if (used == 8) {
        result += char(gathered);
        gathered = 0, used = 0;
      }
    }
    if (used > 0) result += char(gathered << (8 - used));
  }
  return result;
}

}  // namespace

std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc =
      crc32(crc32(0, nullptr, 0), reinterpret_cast<const Bytef*>(body.data()), uInt(body.size()));
  return big_endian(uint32_t(data.size())) + body + big_endian(uint32_t(crc));
}

std::string png(uint32_t width, uint32_t height, int bits, PngColour colour,
                const std::string& samples, const std::string& more, bool interlaced) {
  const int count = colour == PngColour::rgb          ? 3
                    : colour == PngColour::rgba       ? 4
                    : colour == PngColour::grey_alpha ? 2
                                                      : 1;
  std::string pixels;
  if (interlaced) {
    constexpr uint32_t kPasses[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                        {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
    for (const auto& pass : kPasses) {
      pixels += rows(width, height, bits, count, samples, pass[0], pass[1], pass[2], pass[3]);
    }
  } else {
    pixels = rows(width, height, bits, count, samples);
  }
  const std::string header = big_endian(width) + big_endian(height) + char(bits) + char(colour) +
                             std::string(2, '\0') + char(interlaced);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + more +
         png_chunk("IDAT", packed(pixels)) + png_chunk("IEND", "");
}

std::string jpeg(int width, int height, int channels, const std::vector<uint8_t>& pixels,
                 bool progressive, int quality) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = JDIMENSION(width);
  jpeg.image_height = JDIMENSION(height);
  jpeg.input_components = channels;
  jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row = const_cast<JSAMPLE*>(pixels.data()) + jpeg.next_scanline * size_t(width * channels);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return bytes;
}

}  // namespace ridgeline::data::testing
