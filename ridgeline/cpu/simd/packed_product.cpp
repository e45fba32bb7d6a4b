#include "ridgeline/cpu/simd/packed_product.h"

#include <algorithm>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/packed_product.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/depth-inl.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace packed_product {
namespace hn = hwy::HWY_NAMESPACE;

// Panels whose sums stay in the second-level cache during the loop over the whole depth.
constexpr int64_t kPanelsTogether = 8;

template <int kVectors, typename T>
HWY_NOINLINE void packed_tile(const PackedProductArgs<T>& g, int64_t tile, int64_t panel,
                              int64_t column, Range depth) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), row = tile * kTileRows;
  const int64_t rows = std::min<int64_t>(kTileRows, g.rows - row);
  T* c = g.c + panel * g.c_stride + row * kPanel<T> + column;
  const bool starts = depth.begin == 0 && !g.add;
  Vec<T> acc[kTileRows][kVectors];
  RIDGELINE_UNROLL
  for (int m = 0; m < kTileRows; ++m) {
    const Vec<T> bias = hn::Set(d, g.bias != nullptr && m < rows ? g.bias[row + m] : T(0));
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      acc[m][j] = starts || m >= rows ? bias : hn::LoadU(d, c + m * kPanel<T> + j * lanes);
    }
  }
  accumulate<kTileRows, kVectors, Along::m, T>(
      depth.end - depth.begin,
      g.a + packed_at(packed_count(g.rows, kTileRows), tile, kTileRows, depth), kTileRows,
      g.b + panel * g.b_stride + depth.begin * kPanel<T> + column, kPanel<T>, acc);
  RIDGELINE_UNROLL
  for (int m = 0; m < kTileRows; ++m) {
    if (m >= rows) break;
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) hn::StoreU(acc[m][j], d, c + m * kPanel<T> + j * lanes);
  }
}

template <typename T>
void multiply(const PackedProductArgs<T>& g, Range tiles, Range panels) {
  for (int64_t first = panels.begin; first < panels.end; first += kPanelsTogether) {
    const Range group{first, std::min(first + kPanelsTogether, panels.end)};
    for_depth_blocks(g.depth, [&](Range depth) HWY_ATTR {
      for_tiles<T>(tiles, group, [&](int64_t tile, int64_t panel) HWY_ATTR {
        for_columns<T>(g.columns, [&](auto vectors, int64_t column) HWY_ATTR {
          packed_tile<vectors>(g, tile, panel, column, depth);
        });
      });
    });
  }
}

template <typename T>
void pack_left(const T* a, int64_t row_stride, int64_t depth_stride, int64_t rows, int64_t depth,
               T* packed, Range tiles) {
  const int64_t count = packed_count(rows, kTileRows);
  for_depth_blocks(depth, [&](Range part) HWY_ATTR {
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      T* to = packed + packed_at(count, tile, kTileRows, part);
      const int64_t first = tile * kTileRows, live = std::min<int64_t>(kTileRows, rows - first);
      if (row_stride == 1) {
        for (int64_t k = part.begin; k < part.end; ++k, to += kTileRows) {
          pack_row<kTileRows>(a + k * depth_stride + first, live, to);
        }
        continue;
      }
      const T* from[kTileRows];
      for (int64_t m = 0; m < kTileRows; ++m) {
        from[m] = m < live ? a + (first + m) * row_stride : nullptr;
      }
      pack_rows<kTileRows>(from, depth_stride, part, to);
    }
  });
}

int64_t packed_tile_rows() { return kTileRows; }

template <typename T>
constexpr PackedFunctions<T> kPacked{packed_tile_rows, pack_left<T>, multiply<T>};

}  // namespace packed_product

RIDGELINE_SIMD_TABLE(PackedFunctions, packed_functions, packed_product::kPacked)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(PackedFunctions, packed_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
