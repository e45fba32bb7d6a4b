#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ridgeline::data::testing {

// Colour types of PNG.
enum class PngColour : uint8_t { grey = 0, rgb = 2, palette = 3, grey_alpha = 4, rgba = 6 };

// A PNG file of these samples (one byte each up to 8 bits, two above; rows after one another).
// `more` are whole chunks that stand before the pixels.
std::string png(uint32_t width, uint32_t height, int bits, PngColour colour,
                const std::string& samples, const std::string& more = "", bool interlaced = false);
std::string png_chunk(const std::string& type, const std::string& data);

// A JPEG file of `channels` (1 grey, 3 RGB, 4 CMYK) bytes a pixel.
std::string jpeg(int width, int height, int channels, const std::vector<uint8_t>& pixels,
                 bool progressive = false, int quality = 95);

}  // namespace ridgeline::data::testing
