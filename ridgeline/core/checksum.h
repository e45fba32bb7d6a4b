#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ridgeline {

// zlib's CRC-32, 2.5 GB/s on one core: faster than disks deliver. It finds every single flipped bit
// and every burst of up to 32 bits, and misses other damage once in 2^32. `before` is the result
// for the bytes that precede these.
uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t before = 0);

// Returns the checksum as eight hexadecimal digits.
std::string crc32_text(uint32_t crc);
std::string crc32_text(std::string_view text);

}  // namespace ridgeline
