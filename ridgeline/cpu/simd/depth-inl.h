// The loops over depth of products with a packed operand, compiled once per instruction set.
#if defined(RIDGELINE_CPU_SIMD_DEPTH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_DEPTH_INL_H_
#undef RIDGELINE_CPU_SIMD_DEPTH_INL_H_
#else
#define RIDGELINE_CPU_SIMD_DEPTH_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A block of a panel is 16 KiB: two fit into a first-level cache of 48 KiB beside a stream of
// packed tiles. On a Xeon with four threads, 8 x 2 tiles ran at 452 GFLOP/s with a depth of 512 at
// once and at 521 with blocks of 128; on an EPYC both ran at 98 % of its rate.
constexpr int64_t kDepthTogether = 128;
constexpr int64_t kPanelsInFirstCache = 2;

constexpr int64_t packed_count(int64_t rows, int64_t tile_rows) {
  return (rows + tile_rows - 1) / tile_rows;
}

// Returns where a tile's part of a depth block begins in a packed operand of `count` tiles:
// [block of depth][tile][depth][tile rows], one stream for loops over the tiles.
constexpr int64_t packed_at(int64_t count, int64_t tile, int64_t tile_rows, Range depth) {
  return (depth.begin * count + tile * (depth.end - depth.begin)) * tile_rows;
}

// Packs one element of the depth of a tile: kRows neighbours, of which the first `live` exist.
template <int kRows, typename T>
HWY_INLINE void pack_row(const T* from, int64_t live, T* HWY_RESTRICT to) {
  if (live >= kRows) {
    std::copy_n(from, kRows, to);
  } else {
    for (int64_t m = 0; m < kRows; ++m) to[m] = m < live ? from[m] : T(0);
  }
}

// Packs a block of the depth of a tile from rows whose elements are `stride` apart; null: zeros.
// Out of line and without vectors over the depth, which are 180 kB more of code in all: a step of
// shakespeare-lstm takes 28.6 ms instead of 28.5 (medians of four runs in turns).
template <int kRows, typename T>
HWY_NOINLINE void pack_rows(const T* const (&rows)[kRows], int64_t stride, Range depth,
                            T* HWY_RESTRICT to) {
  for (int64_t k = depth.begin; k < depth.end; ++k) {
    for (const T* row : rows) *to++ = row != nullptr ? row[k * stride] : T(0);
    HWY_FENCE;
  }
}

// Calls f for at least one block, which is empty if there is no depth.
template <class F>
HWY_INLINE void for_depth_blocks(int64_t depth, F&& f) {
  int64_t begin = 0;
  do {
    const int64_t end = std::min(begin + kDepthTogether, depth);
    f(Range{begin, end});
    begin = end;
  } while (begin < depth);
}

template <typename T, class F>
HWY_INLINE void for_tiles(Range tiles, Range panels, F&& f) {
  for (int64_t first = panels.begin; first < panels.end; first += kPanelsInFirstCache) {
    const int64_t end = std::min(first + kPanelsInFirstCache, panels.end);
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      for (int64_t panel = first; panel < end; ++panel) f(tile, panel);
    }
  }
}

// Iterates over columns of a panel in pairs of vectors, with a single one at the end.
template <typename T, class F>
HWY_INLINE void for_columns(Range columns, F&& f) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  int64_t column = columns.begin;
  for (; column + lanes < columns.end; column += 2 * lanes)
    f(std::integral_constant<int, 2>(), column);
  if (column < columns.end) f(std::integral_constant<int, 1>(), column);
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
