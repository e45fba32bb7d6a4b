#include "ridgeline/core/checksum.h"

#include <fmt/format.h>
#include <zlib.h>

namespace ridgeline {

uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t before) {
  // zlib returns the initial value, not `before`, when it is called without bytes.
  if (bytes.empty()) return before;
  return uint32_t(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string crc32_text(uint32_t crc) { return fmt::format("{:08x}", crc); }

std::string crc32_text(std::string_view text) {
  return crc32_text(crc32_of(std::as_bytes(std::span(text))));
}

}  // namespace ridgeline
