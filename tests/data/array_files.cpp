#include "tests/data/array_files.h"

#include <zlib.h>

#include "tests/data/files.h"

namespace ridgeline::data::testing {

std::string npy_literal(std::string_view descr, std::string_view shape, bool fortran) {
  return "{'descr': '" + std::string(descr) +
         "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + std::string(shape) + ", }";
}

std::string npy(std::string_view literal, std::string_view payload, int version) {
  const size_t length_bytes = version == 1 ? 2 : 4;
  std::string header(literal);
  while ((8 + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += {char(version), '\0'};
  bytes += version == 1 ? stored(uint16_t(header.size())) : stored(uint32_t(header.size()));
  return bytes + header + std::string(payload);
}

std::string zip(const std::vector<ZipPart>& parts) {
  std::string bytes, directory;
  for (const ZipPart& part : parts) {
    const std::string packed = part.deflated ? deflated(part.bytes, 9, -MAX_WBITS) : part.bytes;
    const auto* data = reinterpret_cast<const Bytef*>(part.bytes.data());
    const uint32_t crc = uint32_t(crc32(0, data, uInt(part.bytes.size()))) ^ part.wrong_crc;
    const uint16_t method = part.method == 0xffff ? (part.deflated ? 8 : 0) : part.method;
    const int64_t size = part.stated_size < 0 ? int64_t(part.bytes.size()) : part.stated_size;
    const auto extra = part.zip64
                           ? stored(uint16_t{1}) + stored(uint16_t{24}) + stored(size) +
                                 stored(int64_t(packed.size())) + stored(int64_t(bytes.size()))
                           : std::string();
    const auto sizes = [&] {
      return part.zip64 ? std::string(8, '\xff')
                        : stored(uint32_t(packed.size())) + stored(uint32_t(size));
    };
    directory += stored(uint32_t{0x02014b50}) + stored(uint16_t{20}) + stored(uint16_t{20}) +
                 stored(part.flags) + stored(method) + std::string(4, '\0') + stored(crc) +
                 sizes() + stored(uint16_t(part.name.size())) + stored(uint16_t(extra.size())) +
                 std::string(10, '\0') +
                 (part.zip64 ? std::string(4, '\xff') : stored(uint32_t(bytes.size()))) +
                 part.name + extra;
    bytes += stored(uint32_t{0x04034b50}) + stored(uint16_t{20}) + stored(part.flags) +
             stored(method) + std::string(4, '\0') + stored(crc) + sizes() +
             stored(uint16_t(part.name.size())) + stored(uint16_t{0}) + part.name + packed;
  }
  const uint32_t begin = uint32_t(bytes.size());
  return bytes + directory + stored(uint32_t{0x06054b50}) + std::string(4, '\0') +
         stored(uint16_t(parts.size())) + stored(uint16_t(parts.size())) +
         stored(uint32_t(directory.size())) + stored(begin) + stored(uint16_t{0});
}

std::vector<double> doubles(const Field& field) {
  std::vector<double> all(size_t(field.rows() * field.shape.numel()));
  read_doubles(field, 0, field.rows(), all);
  return all;
}

}  // namespace ridgeline::data::testing
