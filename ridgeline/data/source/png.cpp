#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/source/array_file.h"
#include "ridgeline/data/source/image.h"

namespace ridgeline::data {
namespace {

struct PngInput {
  std::span<const std::byte> bytes;
  char fault[160] = {};
};

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* in = static_cast<PngInput*>(png_get_io_ptr(png));
  if (count > in->bytes.size()) png_error(png, "the file ends early");
  std::memcpy(out, in->bytes.data(), count);
  in->bytes = in->bytes.subspan(count);
}

void keep_error(png_structp png, png_const_charp message) {
  auto* in = static_cast<PngInput*>(png_get_error_ptr(png));
  std::snprintf(in->fault, sizeof(in->fault), "%s", message);
  png_longjmp(png, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

// libpng exits by longjmp: functions that call setjmp hold nothing with a destructor.
class PngReader {
 public:
  explicit PngReader(PngInput& in) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &in, keep_error, ignore_warning);
    info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw_error(ErrorKind::device, "out of memory: libpng cannot start");
    }
    png_set_read_fn(png_, &in, read_bytes);
    png_set_user_limits(png_, 0x7fffffff, 0x7fffffff);  // kMostPixels is checked instead
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool read_header(ImageInfo& info) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_info(png_, info_);
    info.height = png_get_image_height(png_, info_);
    info.width = png_get_image_width(png_, info_);
    info.bits = png_get_bit_depth(png_, info_);
    const int type = png_get_color_type(png_, info_);
    info.channels = (type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
    return true;
  }

  // Sets up 8 bits per channel without alpha; returns the bytes of a row.
  bool set_up(size_t& row_bytes) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);
    png_set_scale_16(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    row_bytes = png_get_rowbytes(png_, info_);
    return true;
  }

  bool read_rows(png_bytep* rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

[[noreturn]] void refuse(const PngInput& in, const std::string& file) {
  throw_error(ErrorKind::data, "{}: damaged PNG: {}; get it again", file, printable(in.fault));
}

uint32_t big_endian(std::span<const std::byte> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | uint32_t(bytes[at + i]);
  return value;
}

}  // namespace

// The header is the first chunk, at a fixed position: signature, length, "IHDR", and its 13 bytes.
std::optional<ImageInfo> png_info(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < 33) return std::nullopt;
  PngInput in{bytes};
  const uint32_t crc = big_endian(bytes, 29);
  const bool header = big_endian(bytes, 8) == 13 && std::memcmp(bytes.data() + 12, "IHDR", 4) == 0;
  const auto* chunk = reinterpret_cast<const Bytef*>(bytes.data()) + 12;
  if (!header || crc != uint32_t(crc32(crc32(0, nullptr, 0), chunk, 17))) {
    std::snprintf(in.fault, sizeof(in.fault), "%s", "its header is damaged");
    refuse(in, file);
  }
  ImageInfo info;
  info.width = big_endian(bytes, 16);
  info.height = big_endian(bytes, 20);
  info.bits = int(bytes[24]);
  info.channels = (int(bytes[25]) & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
  check_image_size(info, file);
  return info;
}

DecodedImage decode_png(std::span<const std::byte> bytes, const std::string& file) {
  PngInput in{bytes};
  PngReader reader(in);
  DecodedImage image;
  if (!reader.read_header(image.info)) refuse(in, file);
  check_image_size(image.info, file);
  // Checks, before memory for the pixels is allocated, that the file can hold them.
  check_packed_size(file, int64_t(bytes.size()),
                    image.info.height * image.info.width * image.info.bits / 8);
  size_t row_bytes = 0;
  if (!reader.set_up(row_bytes)) refuse(in, file);
  const auto height = size_t(image.info.height), width = size_t(image.info.width);
  const auto channels = size_t(image.info.channels);
  if (row_bytes != width * channels) {
    std::snprintf(in.fault, sizeof(in.fault), "%s", "rows of an unexpected size");
    refuse(in, file);
  }
  std::vector<uint8_t> interleaved(height * row_bytes);
  std::vector<png_bytep> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = interleaved.data() + y * row_bytes;
  if (!reader.read_rows(rows.data())) refuse(in, file);
  image.pixels = to_planes(std::move(interleaved), channels);
  return image;
}

}  // namespace ridgeline::data
