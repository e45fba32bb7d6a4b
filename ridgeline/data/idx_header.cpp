#include "ridgeline/data/idx_header.h"

#include <array>
#include <bit>
#include <string>

#include "ridgeline/core/error.h"

namespace ridgeline::data {
namespace {

std::optional<StoredType> type_of_code(uint8_t code) {
  using Kind = StoredType::Kind;
  constexpr bool kSwapped = std::endian::native == std::endian::little;
  switch (code) {
    case 0x08:
      return StoredType{Kind::unsigned_integer, 1, false};
    case 0x09:
      return StoredType{Kind::signed_integer, 1, false};
    case 0x0b:
      return StoredType{Kind::signed_integer, 2, kSwapped};
    case 0x0c:
      return StoredType{Kind::signed_integer, 4, kSwapped};
    case 0x0d:
      return StoredType{Kind::real, 4, kSwapped};
    case 0x0e:
      return StoredType{Kind::real, 8, kSwapped};
    default:
      return std::nullopt;
  }
}

void read_bytes(ByteStream& in, std::span<uint8_t> out) {
  if (in.read(std::as_writable_bytes(out)) == out.size()) return;
  throw_error(ErrorKind::data, "{}: truncated: ends inside the IDX header; get it again",
              in.name());
}

}  // namespace

std::optional<StoredType> idx_type(std::span<const uint8_t> first) {
  if (first.size() < 4 || first[0] != 0 || first[1] != 0) return std::nullopt;
  if (first[3] < 1 || first[3] > Shape::kMaxRank) return std::nullopt;
  return type_of_code(first[2]);
}

IdxHeader read_idx_header(ByteStream& in) {
  const std::string& file = in.name();
  std::array<uint8_t, 4> magic{};
  read_bytes(in, magic);
  if (magic[0] != 0 || magic[1] != 0) {
    throw_error(ErrorKind::data,
                "{}: not an IDX file: begins with {:02x} {:02x} {:02x} {:02x}, not 00 00 TYPE RANK",
                file, magic[0], magic[1], magic[2], magic[3]);
  }
  IdxHeader header;
  const auto type = type_of_code(magic[2]);
  if (!type) {
    throw_error(ErrorKind::data,
                "{}: byte 2: unknown IDX type {:#04x}; uint8 0x08, int8 0x09, int16 0x0b, int32 "
                "0x0c, float "
                "0x0d and double 0x0e are read",
                file, magic[2]);
  }
  header.type = *type;
  const int rank = magic[3];
  if (rank < 1 || rank > Shape::kMaxRank) {
    throw_error(ErrorKind::data, "{}: byte 3: {} dimensions; 1 to {} are supported", file, rank,
                Shape::kMaxRank);
  }
  std::array<uint8_t, 4 * Shape::kMaxRank> words{};
  read_bytes(in, std::span(words).first(size_t(4 * rank)));
  std::array<int64_t, Shape::kMaxRank> dims{};
  const std::string what = file + ": IDX dimensions";
  int64_t numel = 1;
  for (size_t i = 0; i < size_t(rank); ++i) {
    const uint8_t* w = words.data() + 4 * i;
    dims[i] = int64_t{w[0]} << 24 | int64_t{w[1]} << 16 | int64_t{w[2]} << 8 | int64_t{w[3]};
    numel = checked_mul(numel, dims[i], what.c_str());
  }
  header.payload_bytes = checked_mul(numel, header.type.width, what.c_str());
  header.header_bytes = 4 + 4 * rank;
  header.shape = Shape(std::span<const int64_t>(dims.data(), size_t(rank)));
  return header;
}

}  // namespace ridgeline::data
