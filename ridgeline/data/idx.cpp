#include "ridgeline/data/idx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "ridgeline/core/text.h"
#include "ridgeline/data/idx_header.h"

namespace ridgeline::data {
namespace {

// Deflate codes at best 258 bytes in two bits: a gzip file cannot unpack to more than this times
// its size.
constexpr int64_t kMostGzipRatio = 1032;

struct Header {
  DType dtype = DType::uint8;
  Shape shape;
  int64_t header_bytes = 0;
  int64_t payload_bytes = 0;
};

Header read_header(ByteSource& in) {
  const IdxHeader header = read_idx_header(in);
  if (header.type.kind == StoredType::Kind::signed_integer && header.type.width < 4) {
    throw_error(ErrorKind::data, "{}: IDX type {} is not supported; convert it to uint8 or int32",
                in.name(), header.type.width == 1 ? "int8 (0x09)" : "int16 (0x0b)");
  }
  return {header.type.dtype(), header.shape, header.header_bytes, header.payload_bytes};
}

[[noreturn]] void throw_short(const std::string& file, const Header& header, int64_t got) {
  throw_error(ErrorKind::data,
              "{}: truncated: {} of {} need {} bytes, the file holds {}; get it again", file,
              name(header.dtype), to_string(header.shape), header.payload_bytes, got);
}

[[noreturn]] void throw_long(const std::string& file, const Header& header, std::string_view more) {
  throw_error(ErrorKind::data,
              "{}: trailing bytes: {} of {} need {} bytes, the file holds {}; get it again", file,
              name(header.dtype), to_string(header.shape), header.payload_bytes, more);
}

void check_plain_size(ByteSource& in, const Header& header) {
  const int64_t held = in.file().size() - header.header_bytes;
  if (held < header.payload_bytes) throw_short(in.file().name(), header, held);
  if (held > header.payload_bytes) throw_long(in.file().name(), header, std::to_string(held));
}

HostTensor read_plain(ByteSource& in, const Header& header) {
  check_plain_size(in, header);
  HostTensor tensor(header.dtype, header.shape);
  const std::span<std::byte> out(static_cast<std::byte*>(tensor.view().data),
                                 size_t(header.payload_bytes));
  in.read(out);  // throws if the file shrank since its size was compared
  return tensor;
}

void check_gzip_size(ByteSource& in, const Header& header) {
  const std::string& file = in.file().name();
  const int64_t most = checked_mul(in.file().size(), kMostGzipRatio, file.c_str());
  if (header.payload_bytes > most) {
    throw_error(ErrorKind::data,
                "{}: truncated: {} of {} need {} bytes, more than {} bytes of gzip can hold; get "
                "it again",
                file, name(header.dtype), to_string(header.shape), header.payload_bytes,
                in.file().size());
  }
}

// Grows with what is really there, never past what the header declares: neither a false header nor
// a gzip bomb makes us allocate.
HostTensor read_gzip(ByteSource& in, const Header& header) {
  const std::string& file = in.file().name();
  check_gzip_size(in, header);
  const size_t total = size_t(header.payload_bytes);
  std::vector<std::byte> bytes;
  bytes.reserve(std::min(total, size_t(in.file().size()) * 8));  // images pack about 2 to 5 times
  while (bytes.size() < total) {
    const size_t have = bytes.size();
    bytes.resize(have + std::min(total - have, std::max(have, size_t{1} << 20)));
    const size_t got = in.read(std::span(bytes).subspan(have));
    if (have + got < bytes.size()) throw_short(file, header, int64_t(have + got));
  }
  std::byte extra{};
  if (in.read({&extra, 1}) != 0) throw_long(file, header, "more");  // else the CRC was checked
  HostTensor tensor(header.dtype, header.shape);
  if (total > 0) std::memcpy(tensor.view().data, bytes.data(), total);
  return tensor;
}

void to_host_order(const Tensor& tensor) {
  const size_t width = size_of(tensor.dtype);
  if (width == 1 || std::endian::native == std::endian::big) return;
  auto* bytes = static_cast<std::byte*>(tensor.data);
  for (size_t at = 0; at < tensor.bytes(); at += width)
    std::reverse(bytes + at, bytes + at + width);
}

// What the last word of a gzip file says that it unpacks to: raw bytes have no header to say it.
int64_t stated_gzip_size(const InputFile& file) {
  std::array<uint8_t, 4> last{};
  file.peek(std::as_writable_bytes(std::span(last)), std::max<int64_t>(0, file.size() - 4));
  const int64_t size =
      int64_t{last[3]} << 24 | int64_t{last[2]} << 16 | int64_t{last[1]} << 8 | int64_t{last[0]};
  if (size > checked_mul(file.size(), kMostGzipRatio, file.name().c_str())) {
    throw_error(ErrorKind::data,
                "{}: truncated: states {} bytes, more than {} bytes of gzip can hold; get it again",
                file.name(), size, file.size());
  }
  return size;
}

// The bytes of a file of nothing but items.
int64_t raw_size(const ByteSource& in, InputFile& file, const Shape& item) {
  const int64_t size = in.compressed() ? stated_gzip_size(file) : file.size();
  const int64_t features = item.numel();
  if (features == 0 || size % features != 0) {
    throw_error(
        ErrorKind::data,
        "{}: its size, {}, is no whole number of items of {} ({}); give a file of raw bytes or "
        "an IDX file",
        file.name(), counted(size, "byte"), counted(features, "byte"), to_string(item));
  }
  return size;
}

void refuse_empty(const InputFile& file) {
  if (file.size() == 0) {
    throw_error(ErrorKind::data, "{}: is empty (0 bytes); get it again", file.name());
  }
}

}  // namespace

HostTensor read_idx(InputFile& file) {
  refuse_empty(file);
  ByteSource in(file);
  const Header header = read_header(in);
  HostTensor tensor = in.compressed() ? read_gzip(in, header) : read_plain(in, header);
  to_host_order(tensor.view());
  return tensor;
}

HostTensor read_idx(const std::filesystem::path& path) {
  InputFile file(path);
  return read_idx(file);
}

ItemStream::ItemStream(const std::filesystem::path& path, const Shape& raw_item, bool idx)
    : file_(path), in_((refuse_empty(file_), file_)), item_(raw_item) {
  if (!idx) {
    items_ = left_ = raw_size(in_, file_, raw_item) / raw_item.numel();
    return;
  }
  const Header header = read_header(in_);
  if (header.dtype != DType::uint8) {
    throw_error(ErrorKind::data, "{}: holds {} but images are bytes (uint8)", file_.name(),
                name(header.dtype));
  }
  in_.compressed() ? check_gzip_size(in_, header) : check_plain_size(in_, header);
  header_bytes_ = header.header_bytes;
  items_ = left_ = header.shape[0];
  item_ = header.shape.drop_front();
}

void ItemStream::read(std::span<uint8_t> out) {
  const size_t got = in_.read(std::as_writable_bytes(out));
  if (got < out.size()) {
    throw_error(ErrorKind::data, "{}: truncated: {} items of {} bytes are missing; get it again",
                file_.name(), left_ - int64_t(got) / item_.numel(), item_.numel());
  }
  left_ -= item_.numel() > 0 ? int64_t(out.size()) / item_.numel() : left_;
  if (left_ > 0 || !whole_) return;
  std::byte extra{};  // reading past the end checks the CRC
  if (in_.read({&extra, 1}) != 0) {
    throw_error(ErrorKind::data, "{}: trailing bytes after {} items of {} bytes; get it again",
                file_.name(), items_, item_.numel());
  }
}

void ItemStream::restrict(int64_t begin, int64_t end) {
  if (in_.compressed()) {
    throw_error(ErrorKind::usage, "{}: a gzip file can only be read from its beginning; unpack it",
                file_.name());
  }
  file_.seek(header_bytes_ + begin * item_.numel());
  left_ = end - begin;
  whole_ = false;
}

bool is_idx(const std::filesystem::path& path) {
  InputFile file(path);
  ByteSource in(file);
  std::array<uint8_t, 4> magic{};
  const size_t got = in.read(std::as_writable_bytes(std::span(magic)));
  const auto type = idx_type(std::span(magic).first(got));
  return type && (type->kind != StoredType::Kind::signed_integer || type->width >= 4);
}

}  // namespace ridgeline::data
