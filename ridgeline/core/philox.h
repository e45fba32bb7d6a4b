#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#ifdef __CUDACC__
#define RIDGELINE_HD __host__ __device__
#else
#define RIDGELINE_HD
#endif

namespace ridgeline {

// Philox4x32-10 (Salmon et al., 2011): four random words from a 128-bit counter and a 64-bit key.
// No state, so element i of a stream is the same number on every device, thread and rank.
struct Philox {
  uint64_t seed = 0;    // the key
  uint64_t stream = 0;  // upper half of the counter: which use (initial weights, shuffle, dropout)

  struct Words {
    uint32_t w[4];
  };

  RIDGELINE_HD Words words(uint64_t counter) const {
    uint32_t c0 = uint32_t(counter), c1 = uint32_t(counter >> 32);
    uint32_t c2 = uint32_t(stream), c3 = uint32_t(stream >> 32);
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
      const uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
      const uint32_t n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
      c1 = uint32_t(p1);
      c3 = uint32_t(p0);
      c0 = n0;
      c2 = n2;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
  }

  RIDGELINE_HD uint32_t word(uint64_t index) const { return words(index / 4).w[index % 4]; }

  // Element `index` of the stream, in [0, 1): 24 bits, exact in fp32.
  RIDGELINE_HD float uniform(uint64_t index) const { return float(word(index) >> 8) * 0x1p-24f; }

  // Element `index` of a stream of standard normals (Box-Muller in double, for equal bits
  // anywhere).
  double normal(uint64_t index) const {
    const Words r = words(index / 2);
    const double u = (double(r.w[index % 2 * 2]) + 1.0) * 0x1p-32;  // (0, 1]
    const double v = double(r.w[index % 2 * 2 + 1]) * 0x1p-32;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }

  // Unbiased enough for shuffles: the error is n / 2^64.
  RIDGELINE_HD uint64_t below(uint64_t n, uint64_t index) const {
    const Words r = words(index);
    const uint64_t x = (uint64_t{r.w[0]} << 32) | r.w[1];
#ifdef __CUDA_ARCH__
    return __umul64hi(x, n);
#else
    return uint64_t((static_cast<unsigned __int128>(x) * n) >> 64);
#endif
  }
};

// The streams in use. A stream's low bits are free for a sub-index (a layer, an epoch).
namespace streams {
constexpr uint64_t kInit = 1ull << 56;
constexpr uint64_t kShuffle = 2ull << 56;
constexpr uint64_t kDropout = 3ull << 56;
constexpr uint64_t kAugment = 4ull << 56;
constexpr uint64_t kSample = 5ull << 56;
}  // namespace streams

}  // namespace ridgeline
