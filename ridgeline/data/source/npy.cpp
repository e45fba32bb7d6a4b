#include "ridgeline/data/source/npy.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/record_buffer.h"
#include "ridgeline/data/source/npy_header.h"
#include "ridgeline/data/source/text_column.h"

namespace ridgeline::data {
namespace {

void append_utf8(uint32_t point, std::string& out, const std::string& file) {
  if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
    throw_error(ErrorKind::data, "{}: {:#x} is not a character; is the file damaged?", file, point);
  }
  if (point < 0x80) {
    out += char(point);
  } else if (point < 0x800) {
    out += {char(0xc0 | point >> 6), char(0x80 | (point & 0x3f))};
  } else if (point < 0x10000) {
    out +=
        {char(0xe0 | point >> 12), char(0x80 | (point >> 6 & 0x3f)), char(0x80 | (point & 0x3f))};
  } else {
    out += {char(0xf0 | point >> 18), char(0x80 | (point >> 12 & 0x3f)),
            char(0x80 | (point >> 6 & 0x3f)), char(0x80 | (point & 0x3f))};
  }
}

// Returns one string without its padding zeros.
std::string decode(std::span<const std::byte> stored, const NpyHeader& header,
                   const std::string& file) {
  std::string text;
  if (header.strings == NpyHeader::Strings::bytes) {
    text.assign(reinterpret_cast<const char*>(stored.data()), stored.size());
    text.resize(text.find_last_not_of('\0') + 1);
    check_text(text, file, 1);
    return text;
  }
  std::vector<uint32_t> points(stored.size() / 4);
  std::memcpy(points.data(), stored.data(), stored.size());
  if (header.layout.type.swapped) {
    for (uint32_t& point : points) point = __builtin_bswap32(point);
  }
  while (!points.empty() && points.back() == 0) points.pop_back();
  for (const uint32_t point : points) append_utf8(point, text, file);
  return text;
}

// Reads at most a window at a time, so that a false header allocates nothing.
Field read_strings(std::string name, ByteStream& in, const NpyHeader& header) {
  const std::string& file = in.name();
  if (header.layout.shape.rank() != 1) {
    throw_error(ErrorKind::data, "{}: holds strings of shape {}; one string a sample is read", file,
                to_string(header.layout.shape));
  }
  TextColumn column;
  const auto width = size_t(header.string_width);
  std::vector<std::byte> window(
      std::max<size_t>(1, (size_t{1} << 20) / std::max<size_t>(1, width)) * width);
  const int64_t samples = header.layout.shape[0];
  for (int64_t at = 0; at < samples;) {
    const int64_t part =
        width == 0 ? samples - at : std::min(samples - at, int64_t(window.size() / width));
    const auto bytes = std::span(window).first(size_t(part) * width);
    if (in.read(bytes) < bytes.size()) {
      throw_error(ErrorKind::data, "{}: truncated: ends before string {} of {}; get it again", file,
                  at + part, samples);
    }
    for (int64_t i = 0; i < part; ++i) {
      column.add(decode(bytes.subspan(size_t(i) * width, width), header, file));
    }
    at += part;
  }
  Field field = std::move(column).finish(std::move(name), TextRule::automatic, file);
  field.origin = file;
  field.stored = "strings";
  return field;
}

std::string content_of(const NpyHeader& header) {
  return header.strings == NpyHeader::Strings::none ? header.layout.type.name() : "strings";
}

[[noreturn]] void refuse_size(const std::string& file, const NpyHeader& header, int64_t held) {
  const int64_t needed = header.payload_bytes(file);
  throw_error(ErrorKind::data, "{}: {}: {} of {} need {}, but {} follow the header; get it again",
              file, held < needed ? "truncated" : "trailing bytes", content_of(header),
              to_string(header.layout.shape), counted(needed, "byte"), held);
}

}  // namespace

Field npy_in_file(std::string name, std::shared_ptr<const InputFile> file, int64_t begin,
                  int64_t bytes, ByteStream& in) {
  const NpyHeader header = read_npy_header(in);
  const int64_t held = bytes - header.header_bytes;
  if (held != header.payload_bytes(in.name())) refuse_size(in.name(), header, held);
  if (header.strings != NpyHeader::Strings::none) return read_strings(std::move(name), in, header);
  return array_in_file(std::move(name), std::move(file), begin + header.header_bytes,
                       header.layout);
}

Field npy_in_stream(std::string name, ByteStream& in, int64_t packed) {
  const NpyHeader header = read_npy_header(in);
  check_packed_size(in.name(), packed, header.payload_bytes(in.name()));
  Field field = header.strings == NpyHeader::Strings::none
                    ? array_in_stream(std::move(name), in, header.layout)
                    : read_strings(std::move(name), in, header);
  std::byte extra{};  // reading past the end checks the CRC
  if (in.read({&extra, 1}) != 0) {
    throw_error(ErrorKind::data, "{}: trailing bytes after {} of {}; get it again", in.name(),
                content_of(header), to_string(header.layout.shape));
  }
  return field;
}

Field read_npy(const std::filesystem::path& path, std::string name) {
  auto file = std::make_shared<InputFile>(path);
  ByteSource bytes(*file);
  if (bytes.compressed()) return npy_in_stream(std::move(name), bytes, file->size());
  return npy_in_file(std::move(name), file, 0, file->size(), bytes);
}

}  // namespace ridgeline::data
