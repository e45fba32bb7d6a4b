#include "ridgeline/data/idx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "ridgeline/core/host_memory.h"
#include "ridgeline/core/text.h"
#include "ridgeline/data/idx_header.h"

namespace ridgeline::data {
namespace {

// Deflate encodes at best 258 bytes in two bits: a gzip file cannot expand by more than this
// factor.
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
  require_host_memory(size_t(header.payload_bytes));
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

// Grows with the data that is really there, never past the declared size: neither a false header
// nor a gzip bomb makes us allocate.
HostTensor read_gzip(ByteSource& in, const Header& header) {
  const std::string& file = in.file().name();
  check_gzip_size(in, header);
  const size_t total = size_t(header.payload_bytes);
  require_host_memory(2 * total);  // decompressed, and then as a tensor
  std::vector<std::byte> bytes;
  bytes.reserve(std::min(total, size_t(in.file().size()) * 8));  // images compress 2 to 5 times
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

[[noreturn]] void throw_no_whole_samples(const std::string& file, int64_t bytes,
                                         const Shape& sample) {
  throw_error(
      ErrorKind::data,
      "{}: its size, {}, is no whole number of samples of {} ({}); give a file of raw bytes or "
      "an IDX file",
      file, counted(bytes, "byte"), counted(sample.numel(), "byte"), to_string(sample));
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

SampleStream::SampleStream(const std::filesystem::path& path, const Shape& raw_sample, bool idx)
    : file_(path), in_((refuse_empty(file_), file_)), shape_(raw_sample) {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  if (!idx) {
    const int64_t features = shape_.numel(), size = file_.size();
    if (features == 0 || (!in_.compressed() && size % features != 0)) {
      throw_no_whole_samples(file_.name(), size, shape_);
    }
    if (!in_.compressed()) count_ = size / features;
    end_ = count_.value_or(kUnknown);
    return;
  }
  const Header header = read_header(in_);
  if (header.dtype != DType::uint8) {
    throw_error(ErrorKind::data, "{}: holds {} but images are bytes (uint8)", file_.name(),
                name(header.dtype));
  }
  in_.compressed() ? check_gzip_size(in_, header) : check_plain_size(in_, header);
  header_bytes_ = header.header_bytes;
  count_ = end_ = header.shape[0];
  shape_ = header.shape.drop_front();
  // Any number of empty samples would take no bytes, and arbitrarily long to read.
  if (shape_.numel() == 0 && *count_ > 0) {
    throw_error(ErrorKind::data, "{}: states {} samples of no bytes ({}); get it again",
                file_.name(), *count_, to_string(shape_));
  }
}

int64_t SampleStream::read(int64_t most, std::vector<uint8_t>& out) {
  const int64_t features = shape_.numel(), asked = std::min(most, end_ - begin_);
  const size_t have = out.size();
  out.resize(have + size_t(checked_mul(asked, features, file_.name().c_str())));
  const auto got = int64_t(in_.read(std::as_writable_bytes(std::span(out).subspan(have))));
  if (got < asked * features && count_) {
    throw_error(ErrorKind::data, "{}: truncated: {} samples of {} bytes are missing; get it again",
                file_.name(), end_ - begin_ - got / features, features);
  }
  if (features > 0 && got % features != 0) {
    throw_no_whole_samples(file_.name(), begin_ * features + got, shape_);
  }
  const int64_t count = count_ ? asked : got / features;
  out.resize(have + size_t(count * features));
  begin_ += count;
  if (count_ != begin_) return count;
  std::byte extra{};  // reading past the end checks the CRC
  if (in_.read({&extra, 1}) != 0) {
    throw_error(ErrorKind::data, "{}: trailing bytes after {} samples of {} bytes; get it again",
                file_.name(), *count_, features);
  }
  return count;
}

void SampleStream::restrict(const std::function<Range(int64_t)>& part_of) {
  if (in_.compressed()) {
    throw_error(ErrorKind::usage, "{}: a gzip file can only be read from its beginning; unpack it",
                file_.name());
  }
  const Range part = part_of(*count_);
  file_.seek(header_bytes_ + part.begin * shape_.numel());
  begin_ = part.begin;
  end_ = part.end;
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
