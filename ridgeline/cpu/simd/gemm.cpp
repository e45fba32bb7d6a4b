#include "ridgeline/cpu/simd/gemm.h"

#include <algorithm>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/gemm.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/tile-inl.h"
#include "ridgeline/cpu/simd/weight_grad-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace gemm {
namespace hn = hwy::HWY_NAMESPACE;

// Panels of x that stay in the second-level cache (half of the common 1 MiB) during the loop over
// tiles of w.
constexpr int64_t kPanelGroupBytes = 512 << 10;

// Rows of w that an input gradient takes at a time, so that their lines, each needed by two tiles,
// stay in the second-level cache. All rows at once do not: rows of 4096 bytes map to the same few
// sets, and every line then came twice from the third level (0.8 of the ceiling instead of 1).
constexpr int64_t kDepthBlock = 64;

// One tile of y: rows from `o` on, columns from `column` on of one panel.
struct ForwardTile {
  template <int kRows, int kVectors, typename T>
  static HWY_NOINLINE void run(const ForwardArgs<T>& g, int64_t o, int64_t panel, int64_t column) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d));
    Vec<T> acc[kRows][kVectors];
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const Vec<T> start = hn::Set(d, g.bias != nullptr ? g.bias[o + m] : T(0));
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) acc[m][j] = start;
    }
    accumulate<kRows, kVectors, Along::k, T>(
        g.in, g.w + o * g.in, g.in, g.x + panel * g.in * kPanel<T> + column, kPanel<T>, acc);
    const int64_t at = (panel * g.out + o) * kPanel<T> + column;
    if (g.z != nullptr) store(acc, g.z + at);
    if (g.act == SimdActivation::relu) {
      RIDGELINE_UNROLL
      for (int m = 0; m < kRows; ++m) {
        RIDGELINE_UNROLL
        for (int j = 0; j < kVectors; ++j) acc[m][j] = hn::Max(hn::Zero(d), acc[m][j]);
      }
    }
    store(acc, g.y + at);
    if (g.act == SimdActivation::none || g.act == SimdActivation::relu) return;
    for (int m = 0; m < kRows; ++m) {
      for (int j = 0; j < kVectors; ++j) {
        T* y = g.y + at + m * kPanel<T> + j * lanes;
        hn::StoreU(activate(d, g.act, hn::LoadU(d, y)), d, y);
      }
    }
  }

  template <int kRows, int kVectors, class V, typename T>
  static HWY_INLINE void store(const V (&acc)[kRows][kVectors], T* to) {
    const Tag<T> d;
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        hn::StoreU(acc[m][j], d, to + m * kPanel<T> + j * int64_t(hn::Lanes(d)));
      }
    }
  }
};

template <typename T>
struct DepthBlock : InputGradArgs<T> {
  bool downwards = false;  // the rows of the depth from the last to the first
};

struct InputGradTile {
  // Prefetches the lines of w two further on, because the hardware does not recognise a column of
  // lines.
  template <typename T>
  static HWY_INLINE void prefetch_after(const T* w, int64_t in, int64_t depth) {
    constexpr int64_t kAhead = 128 / int64_t{sizeof(T)};
    if (reinterpret_cast<uintptr_t>(w) % 64 >= kTileRows * sizeof(T)) return;  // already prefetched
    for (int64_t k = 0; k < depth; ++k) hwy::Prefetch(w + k * in + kAhead);
  }

  template <int kRows, int kVectors, typename T>
  static HWY_NOINLINE void run(const DepthBlock<T>& g, int64_t i, int64_t panel, int64_t column) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d));
    const int64_t at = (panel * g.in + i) * kPanel<T> + column;
    const int64_t depth = g.depth.end - g.depth.begin;
    const int64_t first = g.downwards ? g.depth.end - 1 : g.depth.begin;
    const int64_t next = g.downwards ? -1 : 1;
    const T* w = g.w + first * g.in + i;
    prefetch_after(w, next * g.in, depth);
    Vec<T> acc[kRows][kVectors];
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        acc[m][j] = g.add ? hn::LoadU(d, g.dx + at + m * kPanel<T> + j * lanes) : hn::Zero(d);
      }
    }
    accumulate<kRows, kVectors, Along::m, T>(depth, w, next * g.in,
                                             g.dz + (panel * g.out + first) * kPanel<T> + column,
                                             next * kPanel<T>, acc);
    if (g.act == SimdActivation::relu) {
      RIDGELINE_UNROLL
      for (int m = 0; m < kRows; ++m) {
        RIDGELINE_UNROLL
        for (int j = 0; j < kVectors; ++j) {
          const Vec<T> saved = hn::LoadU(d, g.saved + at + m * kPanel<T> + j * lanes);
          acc[m][j] = hn::IfThenElseZero(hn::Gt(saved, hn::Zero(d)), acc[m][j]);
        }
      }
    }
    ForwardTile::store(acc, g.dx + at);
    if (g.act == SimdActivation::none || g.act == SimdActivation::relu) return;
    for (int m = 0; m < kRows; ++m) {
      for (int j = 0; j < kVectors; ++j) {
        const int64_t where = at + m * kPanel<T> + j * lanes;
        const Vec<T> dy = hn::LoadU(d, g.dx + where);
        hn::StoreU(activation_grad(d, g.act, hn::LoadU(d, g.saved + where), dy), d, g.dx + where);
      }
    }
  }
};

// Calls Tile::run<rows, kVectors>.
template <class Tile, int kRows, int kVectors, class Args>
HWY_INLINE void run_tile(int64_t rows, const Args& g, int64_t row, int64_t panel, int64_t column) {
  if (rows == kRows) {
    Tile::template run<kRows, kVectors>(g, row, panel, column);
  } else if constexpr (kRows > 1) {
    run_tile<Tile, kRows - 1, kVectors>(rows, g, row, panel, column);
  }
}

// Computes the tiles of rows x columns of a panel result whose other operand has `depth` features.
template <class Tile, typename T, class Args>
HWY_INLINE void run_tiles(const Args& g, int64_t depth, Range rows, Range columns) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  const int64_t count = rows.end - rows.begin;
  if (count <= 0 || columns.end <= columns.begin) return;
  const int64_t tiles = (count + kTileRows - 1) / kTileRows;
  const int64_t first = columns.begin / kPanel<T>;
  const int64_t last = (columns.end + kPanel<T> - 1) / kPanel<T>;
  const int64_t panel_bytes = depth * kPanel<T> * int64_t{sizeof(T)};
  const int64_t group = std::max<int64_t>(1, kPanelGroupBytes / std::max<int64_t>(1, panel_bytes));
  for (int64_t begin = first; begin < last; begin += group) {
    const int64_t end = std::min(begin + group, last);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = rows.begin + count * tile / tiles;
      const int64_t height = rows.begin + count * (tile + 1) / tiles - row;
      for (int64_t panel = begin; panel < end; ++panel) {
        int64_t column = std::max<int64_t>(0, columns.begin - panel * kPanel<T>);
        const int64_t stop = std::min(kPanel<T>, columns.end - panel * kPanel<T>);
        for (; column + lanes < stop; column += 2 * lanes) {
          run_tile<Tile, kTileRows, 2>(height, g, row, panel, column);
        }
        if (column < stop) run_tile<Tile, kTileRows, 1>(height, g, row, panel, column);
      }
    }
  }
}

template <typename T>
void forward(const ForwardArgs<T>& g, Range rows, Range columns) {
  run_tiles<ForwardTile, T>(g, g.in, rows, columns);
}

template <typename T>
void input_grad(const InputGradArgs<T>& g, Range rows, Range columns) {
  DepthBlock<T> part{g};
  // A depth that is a part of `out` is the rows of w that this thread writes. Its second half is
  // read from the end, for the reason that towards_middle() gives.
  Range left = g.depth;
  const bool whole = left.begin == 0 && left.end == g.out;
  const int64_t middle = whole ? left.end : (left.begin + left.end + 1) / 2;
  do {
    part.downwards = !whole && left.begin >= middle;
    if (part.downwards) {
      part.depth = {std::max(left.end - kDepthBlock, left.begin), left.end};
      left.end = part.depth.begin;
    } else {
      part.depth = {left.begin, std::min(left.begin + kDepthBlock, middle)};
      left.begin = part.depth.end;
    }
    part.act = left.begin < left.end ? SimdActivation() : g.act;
    run_tiles<InputGradTile, T>(part, part.depth.end - part.depth.begin, rows, columns);
    part.add = true;
  } while (left.begin < left.end);
}

template <typename T>
inline constexpr GemmFunctions<T> kProducts{forward<T>, input_grad<T>, weight_grad<T>,
                                            bias_grad<T>};

}  // namespace gemm

RIDGELINE_SIMD_TABLE(GemmFunctions, gemm_functions, gemm::kProducts)
const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(GemmFunctions, gemm_functions);
HWY_EXPORT(target_name);
const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
