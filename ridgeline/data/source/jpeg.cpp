// jpeglib.h requires these before it.
#include <cstddef>
#include <cstdio>
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <csetjmp>
#include <cstring>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/source/image.h"

namespace ridgeline::data {
namespace {

// A file of very many scans takes minutes to decode; photographs have about ten.
constexpr int kMostScans = 500;

struct JpegErrors {
  jpeg_error_mgr manager;  // first, because libjpeg casts it
  std::jmp_buf jump;
  char fault[JMSG_LENGTH_MAX];
  bool at_end;  // the bytes ended
};

void leave(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors->fault);
  std::longjmp(errors->jump, 1);
}

// After a warning libjpeg continues and invents pixels, so only harmless ones are ignored.
void warn(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  const int code = jpeg->err->msg_code;
  if (code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR) return;
  leave(jpeg);
}

void start_source(j_decompress_ptr) {}
boolean end_of_source(j_decompress_ptr jpeg) {
  reinterpret_cast<JpegErrors*>(jpeg->err)->at_end = true;
  ERREXIT(jpeg, JERR_INPUT_EOF);
  return FALSE;
}
void skip_source(j_decompress_ptr jpeg, long count) {
  if (count <= 0) return;
  if (size_t(count) > jpeg->src->bytes_in_buffer) end_of_source(jpeg);
  jpeg->src->next_input_byte += count;
  jpeg->src->bytes_in_buffer -= size_t(count);
}
void end_source(j_decompress_ptr) {}

void limit_scans(j_common_ptr jpeg) {
  if (!jpeg->is_decompressor) return;
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(jpeg);
  if (decompress->input_scan_number <= kMostScans) return;
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  std::snprintf(errors->fault, sizeof(errors->fault), "more than %d scans", kMostScans);
  std::longjmp(errors->jump, 1);
}

// Returns the orientation (1 to 8) of an APP1 segment, or 0 if it is not EXIF, states none or is
// damaged: "Exif", two zeros, then a TIFF header and its first directory, whose entries are tag,
// type, count and value.
int exif_orientation(std::span<const uint8_t> segment) {
  constexpr size_t kTiff = 6, kEntry = 12;
  constexpr uint32_t kOrientation = 0x0112, kShort = 3;
  if (segment.size() < kTiff + 8 || std::memcmp(segment.data(), "Exif\0\0", kTiff) != 0) return 0;
  const std::span<const uint8_t> tiff = segment.subspan(kTiff);
  const bool little = tiff[0] == 'I';
  // Reads past the end return zero.
  const auto number = [&](size_t at, size_t bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      const size_t place = at + (little ? bytes - 1 - i : i);
      value = value << 8 | (place < tiff.size() ? tiff[place] : 0U);
    }
    return value;
  };
  const size_t directory = number(4, 4), entries = number(directory, 2);
  for (size_t at = directory + 2; at < directory + 2 + entries * kEntry; at += kEntry) {
    if (number(at, 2) != kOrientation || number(at + 2, 2) != kShort) continue;
    const uint32_t value = number(at + 8, 2);
    return value >= 1 && value <= 8 ? int(value) : 0;
  }
  return 0;
}

constexpr int kFirstTransposed = 5;  // orientations from here on exchange height and width

// Turns the pixels upright.
void orient(DecodedImage& image, int orientation) {
  if (orientation <= 1) return;
  const bool transposed = orientation >= kFirstTransposed;
  // Whether rows and columns of the stored image run backwards: its first row is at the bottom (or
  // right), its first column at the right (or bottom).
  const bool rows_back =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool columns_back =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const int64_t height = image.info.height, width = image.info.width;
  std::vector<uint8_t> upright(image.pixels.size());
  const uint8_t* from = image.pixels.data();
  for (int c = 0; c < image.info.channels; ++c) {
    uint8_t* const plane = upright.data() + c * height * width;
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t row = rows_back ? height - 1 - y : y,
                      column = columns_back ? width - 1 - x : x;
        plane[transposed ? column * height + row : row * width + column] = *from++;
      }
    }
  }
  image.pixels = std::move(upright);
  if (transposed) std::swap(image.info.height, image.info.width);
}

// libjpeg exits by longjmp: functions that call setjmp hold nothing with a destructor.
class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> bytes) {
    jpeg_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = leave;
    errors_.manager.emit_message = warn;
    progress_.progress_monitor = limit_scans;
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    source_.init_source = start_source;
    source_.fill_input_buffer = end_of_source;
    source_.skip_input_data = skip_source;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = end_source;
  }
  ~JpegReader() {
    if (created_) jpeg_destroy_decompress(&jpeg_);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  const char* fault() const { return errors_.fault; }
  bool at_end() const { return errors_.at_end; }

  bool read_header(ImageInfo& info) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    created_ = true;
    jpeg_.src = &source_;
    jpeg_.progress = &progress_;
    jpeg_save_markers(&jpeg_, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&jpeg_, TRUE);
    for (auto* at = jpeg_.marker_list; at != nullptr && orientation_ == 0; at = at->next) {
      orientation_ = exif_orientation({at->data, at->data_length});
    }
    info.height = jpeg_.image_height;
    info.width = jpeg_.image_width;
    info.bits = jpeg_.data_precision;
    info.channels = jpeg_.jpeg_color_space == JCS_GRAYSCALE ? 1 : 3;
    info.cmyk = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    inverted_ = jpeg_.saw_Adobe_marker != FALSE;
    return true;
  }

  // `rows` hold width x (1, 3 or, for CMYK, 4) bytes each.
  bool read_rows(uint8_t* first, size_t row_bytes, const ImageInfo& info) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_.out_color_space = info.cmyk ? JCS_CMYK : info.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&jpeg_);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW row = first + jpeg_.output_scanline * row_bytes;
      jpeg_read_scanlines(&jpeg_, &row, 1);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

  // Adobe's files store the complements of ink.
  bool inverted() const { return inverted_; }
  int orientation() const { return orientation_; }  // 1 to 8 as in EXIF; 0: the file states none

 private:
  jpeg_decompress_struct jpeg_{};
  JpegErrors errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  bool created_ = false, inverted_ = false;
  int orientation_ = 0;
};

[[noreturn]] void refuse(const JpegReader& reader, const std::string& file) {
  throw_error(ErrorKind::data, "{}: damaged JPEG: {}; get it again", file,
              reader.at_end() ? "the file ends early" : printable(reader.fault()));
}

// Converts four bytes of ink per pixel to three of light.
void cmyk_to_rgb(std::vector<uint8_t>& pixels, bool inverted) {
  const size_t count = pixels.size() / 4;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* in = pixels.data() + 4 * i;
    const auto ink = [&](int c) { return inverted ? 255 - in[c] : int(in[c]); };
    const int light = 255 - ink(3);
    uint8_t rgb[3];
    for (int c = 0; c < 3; ++c) {
      const int product = ink(c) * light + 128;  // rounded division by 255
      rgb[c] = uint8_t(light - ((product + (product >> 8)) >> 8));
    }
    std::memcpy(pixels.data() + 3 * i, rgb, 3);
  }
  pixels.resize(3 * count);
}

}  // namespace

std::optional<ImageInfo> jpeg_info(std::span<const std::byte> bytes, const std::string& file) {
  JpegReader reader(bytes);
  ImageInfo info;
  if (!reader.read_header(info)) {
    if (reader.at_end()) return std::nullopt;
    refuse(reader, file);
  }
  check_image_size(info, file);
  if (reader.orientation() >= kFirstTransposed) std::swap(info.height, info.width);
  return info;
}

DecodedImage decode_jpeg(std::span<const std::byte> bytes, const std::string& file) {
  JpegReader reader(bytes);
  DecodedImage image;
  if (!reader.read_header(image.info)) refuse(reader, file);
  check_image_size(image.info, file);
  const size_t channels = image.info.cmyk ? 4 : size_t(image.info.channels);
  const size_t row_bytes = size_t(image.info.width) * channels;
  std::vector<uint8_t> interleaved(size_t(image.info.height) * row_bytes);
  if (!reader.read_rows(interleaved.data(), row_bytes, image.info)) refuse(reader, file);
  if (image.info.cmyk) cmyk_to_rgb(interleaved, reader.inverted());
  image.pixels = to_planes(std::move(interleaved), size_t(image.info.channels));
  orient(image, reader.orientation());
  return image;
}

}  // namespace ridgeline::data
