#include "ridgeline/core/bf16_unit.h"
#include "ridgeline/prof/peak_kernels.h"

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>

namespace ridgeline::prof {
namespace {

// Eight tile registers of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Four sums: a product takes 16 cycles, and its result is available after 52.
__attribute__((target("amx-tile,amx-bf16"))) double amx_rounds(int64_t rounds, float* sink) {
  const TileConfig config;
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) float sums[16 * 16];
  _tile_stored(0, sums, 64);
  _tile_release();
  *sink = sums[0];
  return 4 * 2.0 * 16 * 16 * 32;
}

__attribute__((target("avx512f,avx512bf16"))) double avx512_rounds(int64_t rounds, float* sink) {
  constexpr int kSums = 12;
  const __m512bh a = __m512bh(_mm512_setzero_si512()), b = a;
  __m512 sums[kSums];
#pragma GCC unroll 16
  for (int k = 0; k < kSums; ++k) sums[k] = _mm512_set1_ps(float(k));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < kSums; ++k) {
      sums[k] = _mm512_dpbf16_ps(sums[k], a, b);
      asm volatile("" : "+v"(sums[k]));  // keeps products of zeros from being optimised away
    }
  }
#pragma GCC unroll 16
  for (int k = 1; k < kSums; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
  *sink = _mm512_cvtss_f32(sums[0]);
  return kSums * 2.0 * 32;
}

}  // namespace

double bf16_rounds(int64_t rounds, float* sink) {
  switch (bf16_unit()) {
    case Bf16Unit::amx:
      return amx_rounds(rounds, sink);
    case Bf16Unit::avx512:
      return avx512_rounds(rounds, sink);
    case Bf16Unit::none:
      break;
  }
  return 0;
}

}  // namespace ridgeline::prof

#else

namespace ridgeline::prof {

double bf16_rounds(int64_t, float*) { return 0; }

}  // namespace ridgeline::prof

#endif
