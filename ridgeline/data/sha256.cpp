#include "ridgeline/data/sha256.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "ridgeline/data/input_file.h"

namespace ridgeline::data {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

template <typename Source>
std::string sha256_of_stream(Source& source) {
  std::vector<std::byte> chunk(256 * 1024);
  Sha256 sum;
  while (const size_t got = source.read(chunk)) sum.update(std::span(chunk).first(got));
  return sum.hex();
}

}  // namespace

void Sha256::block(const std::byte* bytes) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = uint32_t(bytes[4 * i]) << 24 | uint32_t(bytes[4 * i + 1]) << 16 |
           uint32_t(bytes[4 * i + 2]) << 8 | uint32_t(bytes[4 * i + 3]);
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t x = w[i - 15], y = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3)) +
           (std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t t = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                       ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t u =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t;
    d = c, c = b, b = a, a = t + u;
  }
  const uint32_t step[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += step[i];
}

void Sha256::update(std::span<const std::byte> bytes) {
  total_ += bytes.size();
  while (!bytes.empty()) {
    if (pending_bytes_ == 0 && bytes.size() >= 64) {
      block(bytes.data());
      bytes = bytes.subspan(64);
      continue;
    }
    const size_t take = std::min(bytes.size(), 64 - pending_bytes_);
    std::memcpy(pending_.data() + pending_bytes_, bytes.data(), take);
    bytes = bytes.subspan(take);
    pending_bytes_ = (pending_bytes_ + take) % 64;
    if (pending_bytes_ == 0) block(pending_.data());
  }
}

std::string Sha256::hex() {
  const uint64_t bits = total_ * 8;
  const std::byte one{0x80}, zero{};
  update({&one, 1});
  while (pending_bytes_ != 56) update({&zero, 1});
  std::array<std::byte, 8> length;
  for (int i = 0; i < 8; ++i) length[size_t(i)] = std::byte(bits >> (56 - 8 * i));
  update(length);
  std::string text;
  for (const uint32_t word : state_) text += fmt::format("{:08x}", word);
  return text;
}

std::string sha256(std::span<const std::byte> bytes) {
  Sha256 sum;
  sum.update(bytes);
  return sum.hex();
}

std::string sha256(InputFile& file) { return sha256_of_stream(file); }
std::string sha256(ByteSource& source) { return sha256_of_stream(source); }

}  // namespace ridgeline::data
