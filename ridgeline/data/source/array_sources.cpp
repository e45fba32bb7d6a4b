#include "ridgeline/data/source/array_sources.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "ridgeline/core/text.h"
#include "ridgeline/data/idx_header.h"

namespace ridgeline::data {
namespace {

std::shared_ptr<InputFile> open_file(const std::filesystem::path& path) {
  auto file = std::make_shared<InputFile>(path);
  if (file->size() == 0) {
    throw_error(ErrorKind::data, "{}: is empty (0 bytes); get it again", file->name());
  }
  return file;
}

[[noreturn]] void refuse_size(const std::string& file, const ArrayLayout& layout, int64_t held) {
  const int64_t needed = layout.bytes(file);
  throw_error(ErrorKind::data, "{}: {}: {} of {} need {} bytes, the file holds {}; get it again",
              file, held < needed ? "truncated" : "trailing bytes", layout.type.name(),
              to_string(layout.shape), needed, held);
}

// Returns the size of a gzip file's contents, which is unknown until all is decompressed, because
// the size at its end covers one member only, modulo 2^32.
int64_t unpacked_size(const std::filesystem::path& path) {
  InputFile file(path);
  ByteSource in(file);
  std::vector<std::byte> window(size_t{1} << 20);
  int64_t size = 0;
  for (;;) {
    const size_t got = in.read(window);
    size += int64_t(got);
    if (got < window.size()) return size;
  }
}

}  // namespace

Field read_idx_field(const std::filesystem::path& path, std::string name) {
  const auto file = open_file(path);
  ByteSource in(*file);
  const IdxHeader header = read_idx_header(in);
  const ArrayLayout layout{header.type, header.shape, false};
  if (!in.compressed()) {
    const int64_t held = file->size() - header.header_bytes;
    if (held != header.payload_bytes) refuse_size(file->name(), layout, held);
    return array_in_file(std::move(name), file, header.header_bytes, layout);
  }
  check_packed_size(file->name(), file->size(), header.payload_bytes);
  Field field = array_in_stream(std::move(name), in, layout);
  std::byte extra{};  // reading past the end checks the CRC
  if (in.read({&extra, 1}) != 0) {
    throw_error(ErrorKind::data, "{}: trailing bytes after {} of {}; get it again", file->name(),
                layout.type.name(), to_string(layout.shape));
  }
  return field;
}

Field read_raw_field(const std::filesystem::path& path, std::string name, const StoredType& type,
                     const Shape& sample) {
  const auto file = open_file(path);
  ByteSource in(*file);
  const int64_t size = in.compressed() ? unpacked_size(path) : file->size();
  const int64_t bytes = checked_mul(sample.numel(), type.width, file->name().c_str());
  if (bytes == 0 || size % bytes != 0) {
    throw_error(ErrorKind::data,
                "{}: its size, {}, is no whole number of samples of {} ({} of {}); check the type "
                "and the shape",
                file->name(), counted(size, "byte"), counted(bytes, "byte"), type.name(),
                to_string(sample));
  }
  const ArrayLayout layout{type, sample.prepend(size / bytes), false};
  if (!in.compressed()) return array_in_file(std::move(name), file, 0, layout);
  return array_in_stream(std::move(name), in, layout);
}

}  // namespace ridgeline::data
