// The AMX form of split_product.h.
#include "ridgeline/cpu/simd/split_product.h"

#if defined(__x86_64__) && defined(__linux__)

// GCC 12 reports the undefined values of its own intrinsics as uninitialized.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cstring>

#include "ridgeline/cpu/simd/bf16_product.h"

namespace ridgeline::cpu::simd {
namespace {

#define RIDGELINE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define RIDGELINE_AMX __attribute__((target("amx-tile,amx-bf16")))

// The parts of 16 numbers, each in the upper half of a lane whose lower half is zero.
struct Parts {
  __m512i at[3];
};

RIDGELINE_AVX512 inline __m512i upper_half(__m512i bits) {
  return _mm512_and_si512(bits, _mm512_set1_epi32(int(0xffff0000)));
}

// Splits into the nearest bf16, the nearest bf16 of the remainder, and the rest. `largest` keeps
// the largest magnitude so far: above kSplitLimit numbers would round to infinity.
RIDGELINE_AVX512 inline Parts split_vector(__m512 x, __m512& largest) {
  constexpr int kAbsoluteMax = 0b1011;
  largest = _mm512_range_ps(largest, x, kAbsoluteMax);
  const __m512i half = _mm512_set1_epi32(0x8000);
  Parts parts;
  parts.at[0] = upper_half(_mm512_add_epi32(_mm512_castps_si512(x), half));
  const __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(parts.at[0]));
  parts.at[1] = upper_half(_mm512_add_epi32(_mm512_castps_si512(rest), half));
  parts.at[2] = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(parts.at[1])));
  return parts;
}

// Splits numbers of which some are huge: those are truncated instead of rounded. Infinity and NaN
// are their own last part (split_product.h).
RIDGELINE_AVX512 inline Parts split_huge(__m512 x, __m512& largest) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __mmask16 huge = _mm512_cmpge_epi32_mask(size, _mm512_set1_epi32(0x7f7f8000));
  const __mmask16 endless = _mm512_cmpge_epi32_mask(size, _mm512_set1_epi32(0x7f800000));
  const __mmask16 is_nan = _mm512_cmpgt_epi32_mask(size, _mm512_set1_epi32(0x7f800000));
  Parts parts = split_vector(x, largest);
  parts.at[0] = _mm512_mask_mov_epi32(parts.at[0], huge, upper_half(bits));
  parts.at[0] = _mm512_maskz_mov_epi32(__mmask16(~endless), parts.at[0]);
  const __m512 rest = _mm512_maskz_sub_ps(__mmask16(~endless), x, _mm512_castsi512_ps(parts.at[0]));
  const __m512i half = _mm512_set1_epi32(0x8000);
  parts.at[1] = upper_half(_mm512_add_epi32(_mm512_castps_si512(rest), half));
  parts.at[2] = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(parts.at[1])));
  parts.at[2] = _mm512_mask_mov_epi32(parts.at[2], endless, upper_half(bits));
  parts.at[2] = _mm512_mask_mov_epi32(parts.at[2], is_nan, _mm512_set1_epi32(0x7fc00000));
  return parts;
}

RIDGELINE_AVX512 inline bool any_huge(__m512 largest) {
  const __m512i size =
      _mm512_and_si512(_mm512_castps_si512(largest), _mm512_set1_epi32(0x7fffffff));
  return _mm512_cmpge_epi32_mask(size, _mm512_set1_epi32(0x7f7f8000)) != 0;
}

// Pairs bf16 numbers from two vectors of parts: k and k + 16 of a block are neighbours in the tiles
// of both operands, so that no lane moves.
RIDGELINE_AVX512 inline __m512i pairs(__m512i low, __m512i high) {
  return _mm512_or_si512(_mm512_srli_epi32(low, 16), high);
}

RIDGELINE_AVX512 inline __mmask16 lanes_below(int64_t count) {
  return count >= 16 ? __mmask16(0xffff) : count <= 0 ? __mmask16(0) : __mmask16((1 << count) - 1);
}

constexpr int64_t kPart = kSplitPart;

// Stores pair i of vectors (of 32) at block + part + at(i). Returns whether there were huge
// numbers.
template <auto of_vector, class Load, class At>
RIDGELINE_AVX512 inline bool split_vectors(uint16_t* block, const Load& load, const At& at) {
  __m512 largest = _mm512_setzero_ps();
  for (int64_t i = 0; i < kSplitSide; ++i) {
    const Parts low = of_vector(load(i, 0), largest), high = of_vector(load(i, 1), largest);
    for (int64_t p = 0; p < 3; ++p) {
      _mm512_storeu_si512(block + p * kPart + at(i), pairs(low.at[p], high.at[p]));
    }
  }
  return any_huge(largest);
}

RIDGELINE_AVX512 void split_left(const float* a, int64_t lda, int64_t rows, int64_t depth,
                                 uint16_t* block) {
  const __mmask16 masks[2] = {lanes_below(depth), lanes_below(depth - 16)};
  const auto load = [&](int64_t row, int64_t half) RIDGELINE_AVX512 {
    return _mm512_maskz_loadu_ps(row < rows ? masks[half] : __mmask16(0),
                                 a + row * lda + half * 16);
  };
  const auto at = [](int64_t row) { return row * kSplitSide; };
  if (split_vectors<split_vector>(block, load, at)) split_vectors<split_huge>(block, load, at);
}

// The position of pair i of the right operand: rows k = i % 16 and k + 16 of one half of the
// columns.
constexpr int64_t right_at(int64_t i) { return i / 16 * (kPart / 2) + i % 16 * 32; }

struct RightRows {
  const float* b;
  int64_t ldb, depth;
  __mmask16 masks[2];

  RIDGELINE_AVX512 __m512 operator()(int64_t i, int64_t half) const {
    const int64_t k = i % 16 + half * 16;
    return _mm512_maskz_loadu_ps(k < depth ? masks[i / 16] : __mmask16(0),
                                 b + k * ldb + i / 16 * 16);
  }
};

RIDGELINE_AVX512 void split_right(const float* b, int64_t ldb, int64_t depth, int64_t columns,
                                  uint16_t* block) {
  const RightRows load{b, ldb, depth, {lanes_below(columns), lanes_below(columns - 16)}};
  if (split_vectors<split_vector>(block, load, right_at))
    split_vectors<split_huge>(block, load, right_at);
}

RIDGELINE_AVX512 inline __m512 lower_pairs(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
RIDGELINE_AVX512 inline __m512 upper_pairs(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

// Transposes sixteen vectors of sixteen numbers.
RIDGELINE_AVX512 inline void transpose_vectors(__m512 (&v)[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  // v[i + c] holds, for each quarter, column c of four rows.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    v[i] = lower_pairs(t[i], t[i + 2]);
    v[i + 1] = upper_pairs(t[i], t[i + 2]);
    v[i + 2] = lower_pairs(t[i + 1], t[i + 3]);
    v[i + 3] = upper_pairs(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 a = _mm512_shuffle_f32x4(v[c], v[c + 4], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(v[c + 8], v[c + 12], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(v[c], v[c + 4], 0xdd);
    const __m512 e = _mm512_shuffle_f32x4(v[c + 8], v[c + 12], 0xdd);
    t[c] = _mm512_shuffle_f32x4(a, b, 0x88);
    t[c + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
    t[c + 4] = _mm512_shuffle_f32x4(d, e, 0x88);
    t[c + 12] = _mm512_shuffle_f32x4(d, e, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i] = t[i];
}

// Handles both transposed operands: from[i * ld + j], of which `high` by `wide` numbers exist,
// gives the vectors of one index over the other. In a left operand i is k, in a right one j.
template <bool kLeft>
RIDGELINE_AVX512 void split_transposed(const float* from, int64_t ld, int64_t high, int64_t wide,
                                       uint16_t* block) {
  alignas(64) float square[2][2][16][16];  // [half of the vectors][half of k]
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 2; ++j) {
      __m512 v[16];
      const __mmask16 mask = lanes_below(wide - j * 16);
#pragma GCC unroll 16
      for (int64_t r = 0; r < 16; ++r) {
        v[r] = _mm512_maskz_loadu_ps(i * 16 + r < high ? mask : __mmask16(0),
                                     from + (i * 16 + r) * ld + j * 16);
      }
      transpose_vectors(v);
#pragma GCC unroll 16
      for (int64_t r = 0; r < 16; ++r) {
        _mm512_store_ps(kLeft ? square[j][i][r] : square[i][j][r], v[r]);
      }
    }
  }
  const auto load = [&](int64_t i, int64_t half)
                        RIDGELINE_AVX512 { return _mm512_load_ps(square[i / 16][half][i % 16]); };
  const auto at = [](int64_t i) { return kLeft ? i * kSplitSide : right_at(i); };
  if (split_vectors<split_vector>(block, load, at)) split_vectors<split_huge>(block, load, at);
}

RIDGELINE_AVX512 void split_left_transposed(const float* a, int64_t lda, int64_t rows,
                                            int64_t depth, uint16_t* block) {
  split_transposed<true>(a, lda, depth, rows, block);
}

RIDGELINE_AVX512 void split_right_transposed(const float* b, int64_t ldb, int64_t depth,
                                             int64_t columns, uint16_t* block) {
  split_transposed<false>(b, ldb, columns, depth, block);
}

RIDGELINE_AVX512 void take_right(const float* b, int64_t ldb, int64_t depth, int64_t columns,
                                 uint16_t* block) {
  const RightRows load{b, ldb, depth, {lanes_below(columns), lanes_below(columns - 16)}};
  for (int64_t i = 0; i < kSplitSide; ++i) {
    const __m512i low = _mm512_castps_si512(load(i, 0)), high = _mm512_castps_si512(load(i, 1));
    _mm512_storeu_si512(block + right_at(i), pairs(low, upper_half(high)));
  }
}

RIDGELINE_AVX512 void finish_vectors(float* c, int64_t ldc, int64_t rows, float scale,
                                     const float* bias, bool rectified) {
  const __m512 factor = _mm512_set1_ps(scale), zero = _mm512_setzero_ps();
  for (int64_t row = 0; row < rows; ++row) {
    const __m512 start = _mm512_set1_ps(bias != nullptr ? bias[row] : 0.0f);
    for (int64_t half = 0; half < 2; ++half) {
      float* to = c + row * ldc + half * 16;
      const __m512 v = _mm512_fmadd_ps(_mm512_loadu_ps(to), factor, start);
      _mm512_storeu_ps(to, rectified ? _mm512_max_ps(zero, v) : v);  // keeps NaN
    }
  }
}

struct alignas(64) SplitTiles {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

RIDGELINE_AMX void begin_tiles() {
  static constexpr SplitTiles kWhole;
  _tile_loadconfig(&kWhole);
}

RIDGELINE_AMX void end_tiles() { _tile_release(); }

// Tile registers 0 to 3 hold sums of two tiles of rows by two of columns; 4 and 5 hold a; 6 and 7
// hold b.
// From one pair of parts to the next only one operand changes: 14 loads for 24 products.
template <int kPartsOfB>
RIDGELINE_AMX void multiply_parts(const uint16_t* a, const uint16_t* b, int64_t blocks, float* c,
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
    if constexpr (kPartsOfB == 3) {
      RIDGELINE_LOAD_RIGHT(1);
      RIDGELINE_MULTIPLY;
    }
    RIDGELINE_LOAD_LEFT(0);
    RIDGELINE_MULTIPLY;
    if constexpr (kPartsOfB == 3) {
      RIDGELINE_LOAD_RIGHT(2);
      RIDGELINE_MULTIPLY;
      RIDGELINE_LOAD_RIGHT(0);
      RIDGELINE_MULTIPLY;
    }
    a += kSplitBlock;
    b += kPartsOfB * kPart;
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
  static constexpr SplitEngine kAmx{
      "amx",         split_left,  split_right, split_left_transposed, split_right_transposed,
      take_right,    begin_tiles, end_tiles,   multiply_parts<3>,     multiply_parts<1>,
      finish_vectors};
  // Requests the tile registers; a CPU that has them also has AVX-512.
  return std::strcmp(bf16_engine().name, "amx") == 0 ? &kAmx : nullptr;
}

}  // namespace ridgeline::cpu::simd

#else

namespace ridgeline::cpu::simd {

const SplitEngine* split_engine() { return nullptr; }

}  // namespace ridgeline::cpu::simd

#endif
