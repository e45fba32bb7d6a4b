#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ridgeline::data {

class ByteSource;
class InputFile;

// SHA-256 (FIPS 180-4) of a stream of bytes.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  std::string hex();  // ends the stream

 private:
  void block(const std::byte* bytes);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  size_t pending_bytes_ = 0;
  uint64_t total_ = 0;
};

std::string sha256(std::span<const std::byte> bytes);
std::string sha256(InputFile& file);     // of the file itself
std::string sha256(ByteSource& source);  // of the decompressed contents

}  // namespace ridgeline::data
