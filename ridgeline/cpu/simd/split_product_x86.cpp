// The AMX form of split_product.h.
#include "ridgeline/cpu/simd/split_product.h"

#if defined(__x86_64__) && defined(__linux__)

// GCC 12 calls its own intrinsics' undefined values uninitialized.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cstring>

#include "ridgeline/cpu/simd/bf16_product.h"

namespace ridgeline::cpu::simd {
namespace {

#define RIDGELINE_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define RIDGELINE_AMX __attribute__((target("amx-tile,amx-bf16")))

struct Parts {
  __m256i at[3];
};

RIDGELINE_AVX512_BF16 inline __m512 widen(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// The nearest bf16, of what is left the nearest, and the rest. A number that would round to
// infinity is cut off instead; infinity and NaN have no rest.
RIDGELINE_AVX512_BF16 inline Parts split(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __mmask16 huge = _mm512_cmpge_epi32_mask(size, _mm512_set1_epi32(0x7f7f8000));
  Parts parts;
  parts.at[0] = __m256i(_mm512_cvtneps_pbh(x));
  __m512 rest = _mm512_sub_ps(x, widen(parts.at[0]));
  if (huge != 0) [[unlikely]] {
    const __mmask16 endless = _mm512_cmpge_epi32_mask(size, _mm512_set1_epi32(0x7f800000));
    const __m256i cut = _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
    parts.at[0] = _mm256_mask_mov_epi16(parts.at[0], __mmask16(huge & ~endless), cut);
    rest = _mm512_maskz_sub_ps(__mmask16(~endless), x, widen(parts.at[0]));
  }
  parts.at[1] = __m256i(_mm512_cvtneps_pbh(rest));
  parts.at[2] = __m256i(_mm512_cvtneps_pbh(_mm512_sub_ps(rest, widen(parts.at[1]))));
  return parts;
}

RIDGELINE_AVX512_BF16 inline __mmask16 lanes_below(int64_t count) {
  return count >= 16 ? __mmask16(0xffff) : count <= 0 ? __mmask16(0) : __mmask16((1 << count) - 1);
}

constexpr int64_t kPart = kSplitSide * kSplitSide;

RIDGELINE_AVX512_BF16 void split_left(const float* a, int64_t lda, int64_t rows, int64_t depth,
                                      uint16_t* block) {
  const __mmask16 masks[2] = {lanes_below(depth), lanes_below(depth - 16)};
  for (int64_t row = 0; row < kSplitSide; ++row) {
    for (int64_t half = 0; half < 2; ++half) {
      const __mmask16 mask = row < rows ? masks[half] : __mmask16(0);
      const Parts parts = split(_mm512_maskz_loadu_ps(mask, a + row * lda + half * 16));
      for (int64_t p = 0; p < 3; ++p) {
        auto* to = reinterpret_cast<__m256i*>(block + p * kPart + row * kSplitSide + half * 16);
        _mm256_storeu_si256(to, parts.at[p]);
      }
    }
  }
}

RIDGELINE_AVX512_BF16 void split_right(const float* b, int64_t ldb, int64_t depth, int64_t columns,
                                       uint16_t* block) {
  const __mmask16 masks[2] = {lanes_below(columns), lanes_below(columns - 16)};
  for (int64_t k = 0; k < kSplitSide; k += 2) {
    for (int64_t half = 0; half < 2; ++half) {
      const auto load = [&](int64_t row) RIDGELINE_AVX512_BF16 {
        const __mmask16 mask = row < depth ? masks[half] : __mmask16(0);
        return split(_mm512_maskz_loadu_ps(mask, b + row * ldb + half * 16));
      };
      const Parts even = load(k), odd = load(k + 1);
      for (int64_t p = 0; p < 3; ++p) {
        const __m512i pairs =
            _mm512_or_si512(_mm512_cvtepu16_epi32(even.at[p]),
                            _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd.at[p]), 16));
        _mm512_storeu_si512(block + p * kPart + half * (kPart / 2) + k * 16, pairs);
      }
    }
  }
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

RIDGELINE_AMX void begin_tiles() {
  static constexpr TileConfig kWhole;
  _tile_loadconfig(&kWhole);
}

RIDGELINE_AMX void end_tiles() { _tile_release(); }

// Tile registers 0 to 3: sums of two tiles of rows by two of columns; 4 and 5: a; 6 and 7: b.
// From one pair of parts to the next only one operand changes: 14 loads for 24 products.
RIDGELINE_AMX void multiply_tiles(const uint16_t* a, const uint16_t* b, int64_t blocks, float* c,
                                  int64_t ldc, bool add) {
  const int64_t row = ldc * int64_t{sizeof(float)};
  if (add) {
    _tile_loadd(0, c, row);
    _tile_loadd(1, c + 16, row);
    _tile_loadd(2, c + 16 * ldc, row);
    _tile_loadd(3, c + 16 * ldc + 16, row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  constexpr int64_t kTile = kPart / 2;
#define RIDGELINE_LOAD_LEFT(part)       \
  _tile_loadd(4, a + (part)*kPart, 64); \
  _tile_loadd(5, a + (part)*kPart + kTile, 64)
#define RIDGELINE_LOAD_RIGHT(part)      \
  _tile_loadd(6, b + (part)*kPart, 64); \
  _tile_loadd(7, b + (part)*kPart + kTile, 64)
#define RIDGELINE_MULTIPLY \
  _tile_dpbf16ps(0, 4, 6); \
  _tile_dpbf16ps(1, 4, 7); \
  _tile_dpbf16ps(2, 5, 6); \
  _tile_dpbf16ps(3, 5, 7)
  for (int64_t k = 0; k < blocks; ++k) {
    RIDGELINE_LOAD_LEFT(2);
    RIDGELINE_LOAD_RIGHT(0);
    RIDGELINE_MULTIPLY;
    RIDGELINE_LOAD_LEFT(1);
    RIDGELINE_MULTIPLY;
    RIDGELINE_LOAD_RIGHT(1);
    RIDGELINE_MULTIPLY;
    RIDGELINE_LOAD_LEFT(0);
    RIDGELINE_MULTIPLY;
    RIDGELINE_LOAD_RIGHT(2);
    RIDGELINE_MULTIPLY;
    RIDGELINE_LOAD_RIGHT(0);
    RIDGELINE_MULTIPLY;
    a += kSplitBlock;
    b += kSplitBlock;
  }
#undef RIDGELINE_MULTIPLY
#undef RIDGELINE_LOAD_RIGHT
#undef RIDGELINE_LOAD_LEFT
  _tile_stored(0, c, row);
  _tile_stored(1, c + 16, row);
  _tile_stored(2, c + 16 * ldc, row);
  _tile_stored(3, c + 16 * ldc + 16, row);
}

}  // namespace

const SplitEngine* split_engine() {
  static constexpr SplitEngine kAmx{"amx",       split_left, split_right,
                                    begin_tiles, end_tiles,  multiply_tiles};
  // Asks the system for the tile registers; a CPU with them has AVX512-BF16.
  return std::strcmp(bf16_engine().name, "amx") == 0 ? &kAmx : nullptr;
}

}  // namespace ridgeline::cpu::simd

#else

namespace ridgeline::cpu::simd {

const SplitEngine* split_engine() { return nullptr; }

}  // namespace ridgeline::cpu::simd

#endif
