// The bf16 instructions of x86, selected by CPUID: AVX512-BF16 multiplies pairs in vectors, AMX
// tiles of 16 x 32 by 32 x 16.
#include "ridgeline/cpu/simd/bf16_product.h"

#if defined(__x86_64__) && defined(__linux__)

#include <immintrin.h>

#include <algorithm>

#include "ridgeline/core/bf16_unit.h"

namespace ridgeline::cpu::simd {
namespace {

#define RIDGELINE_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define RIDGELINE_AMX __attribute__((target("amx-tile,amx-bf16")))

// 12 x 2 vectors of sums: the most that 32 registers hold beside two of b and one of a.
constexpr int kRowTile = 12;
// Rows of a may be far apart (weights of a linear layer), so their lines are prefetched this far
// ahead.
constexpr int64_t kAhead = 512;

template <int kRows>
RIDGELINE_AVX512_BF16 __attribute__((noinline)) void multiply_rows(const uint16_t* a, int64_t lda,
                                                                   const uint16_t* b, int64_t depth,
                                                                   float* c) {
  __m512 acc[kRows][2];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) acc[m][0] = acc[m][1] = _mm512_setzero_ps();
  for (int64_t k0 = 0; k0 < depth; k0 += kBf16Depth) {
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      _mm_prefetch(reinterpret_cast<const char*>(a + m * lda + k0 + kAhead), _MM_HINT_T0);
    }
    for (int64_t k = k0; k < k0 + kBf16Depth; k += 2) {
      const auto* from = reinterpret_cast<const __m512i*>(b + k * kBf16Panel);
      const auto left = __m512bh(_mm512_loadu_si512(from));
      const auto right = __m512bh(_mm512_loadu_si512(from + 1));
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        int32_t pair;
        __builtin_memcpy(&pair, a + m * lda + k, sizeof(pair));
        const auto both = __m512bh(_mm512_set1_epi32(pair));
        acc[m][0] = _mm512_dpbf16_ps(acc[m][0], both, left);
        acc[m][1] = _mm512_dpbf16_ps(acc[m][1], both, right);
      }
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    _mm512_storeu_ps(c + m * kBf16Panel, acc[m][0]);
    _mm512_storeu_ps(c + m * kBf16Panel + 16, acc[m][1]);
  }
}

template <int kRows>
void multiply_rest(int64_t rows, const uint16_t* a, int64_t lda, const uint16_t* b, int64_t depth,
                   float* c) {
  if (rows >= kRows) return multiply_rows<kRows>(a, lda, b, depth, c);
  if constexpr (kRows > 1) multiply_rest<kRows - 1>(rows, a, lda, b, depth, c);
}

void multiply_avx512(const uint16_t* a, int64_t lda, int64_t rows, const uint16_t* b, int64_t depth,
                     float* c) {
  for (int64_t r = 0; r < rows; r += kRowTile) {
    multiply_rest<kRowTile>(rows - r, a + r * lda, lda, b, depth, c + r * kBf16Panel);
  }
}

// Tile registers 0 to 3 hold sums of two tiles of rows by two of columns; 4 and 5 hold a; 6 and 7
// hold b.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  TileConfig(int64_t upper, int64_t lower) {
    const auto set = [&](int tile, int64_t count) {
      row_bytes[tile] = 64;
      rows[tile] = uint8_t(count);
    };
    for (const int tile : {0, 1, 4}) set(tile, upper);
    for (const int tile : {2, 3, 5}) set(tile, std::max<int64_t>(1, lower));
    for (const int tile : {6, 7}) set(tile, 16);
  }
};

RIDGELINE_AMX void load(const TileConfig& config) {
  asm volatile("" : : "r"(&config) : "memory");  // GCC's intrinsic reads only eight bytes
  _tile_loadconfig(&config);
}

// Takes up to 16 rows.
RIDGELINE_AMX void multiply_tile(const uint16_t* a, int64_t lda, const uint16_t* b, int64_t depth,
                                 float* c) {
  constexpr int64_t kStride = kBf16Panel * 4;  // bytes from a pair of b, or a row of c, to the next
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t k = 0; k < depth; k += kBf16Depth) {
    _tile_loadd(4, a + k, lda * 2);
    _tile_loadd(6, b + k * kBf16Panel, kStride);
    _tile_loadd(7, b + k * kBf16Panel + 32, kStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_stored(0, c, kStride);
  _tile_stored(1, c + 16, kStride);
}

// Takes 17 to 32 rows.
RIDGELINE_AMX void multiply_tiles(const uint16_t* a, int64_t lda, const uint16_t* b, int64_t depth,
                                  float* c) {
  constexpr int64_t kStride = kBf16Panel * 4;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < depth; k += kBf16Depth) {
    _tile_loadd(4, a + k, lda * 2);
    _tile_loadd(6, b + k * kBf16Panel, kStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + k * kBf16Panel + 32, kStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + 16 * lda + k, lda * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, kStride);
  _tile_stored(1, c + 16, kStride);
  _tile_stored(2, c + 16 * kBf16Panel, kStride);
  _tile_stored(3, c + 16 * kBf16Panel + 16, kStride);
}

RIDGELINE_AMX void multiply_amx(const uint16_t* a, int64_t lda, int64_t rows, const uint16_t* b,
                                int64_t depth, float* c) {
  int64_t r = 0;
  if (rows >= 32) {
    const TileConfig whole(16, 16);
    load(whole);
    for (; r + 32 <= rows; r += 32) {
      multiply_tiles(a + r * lda, lda, b, depth, c + r * kBf16Panel);
    }
  }
  if (r < rows) {
    const int64_t left = rows - r;
    const TileConfig part(std::min<int64_t>(left, 16), left - 16);
    load(part);
    const auto multiply = left > 16 ? multiply_tiles : multiply_tile;
    multiply(a + r * lda, lda, b, depth, c + r * kBf16Panel);
  }
  _tile_release();
}

}  // namespace

const Bf16Engine& bf16_engine() {
  static const Bf16Engine engine = [] {
    if (bf16_unit() == Bf16Unit::amx) return Bf16Engine{"amx", multiply_amx};
    if (bf16_unit() == Bf16Unit::avx512) return Bf16Engine{"avx512_bf16", multiply_avx512};
    return bf16_portable_engine();
  }();
  return engine;
}

}  // namespace ridgeline::cpu::simd

#else

namespace ridgeline::cpu::simd {

const Bf16Engine& bf16_engine() { return bf16_portable_engine(); }

}  // namespace ridgeline::cpu::simd

#endif
