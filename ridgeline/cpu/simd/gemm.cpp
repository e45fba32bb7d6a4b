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

// An input gradient takes blocks of w of this many rows and of one cache line of columns. The sums
// of the columns stay in the first-level cache until all rows have been added.
constexpr int64_t kDepthBlock = 128;
template <typename T>
constexpr int64_t kBlockColumns = 64 / int64_t{sizeof(T)};

// The blocks of a larger w are copied before they are multiplied. Lines of one column are otherwise
// needed again for each panel, and those of a matrix whose rows are multiples of 4096 bytes do not
// stay in a cache, because they map to the same few sets.
constexpr int64_t kNearWeights = 512 << 10;

// Rows of w that are a multiple of this many bytes map to the same set of a first-level cache, so
// that a tile's rows evict each other. A tile then copies its rows, this many columns at a time,
// with a gap between them.
constexpr int64_t kAliasBytes = 4096, kCopiedColumns = 512;

// A part of w's columns, and where a tile finds it.
template <typename T>
struct ForwardBlock : ForwardArgs<T> {
  Range depth;
  const T* block;
  int64_t row, ld;  // the row of w where the block begins, and from a row to the next
};

// One tile of y: rows from `o` on, columns from `column` on of one panel.
struct ForwardTile {
  // With 32 registers, 12 x 2 sums run at 99 % of the FMA ceiling of a Zen 4, 8 x 2 at 95 %: each
  // row loads a weight for two products.
  static constexpr int kMostRows = kManyRegisters ? 12 : kTileRows;

  template <int kRows, int kVectors, typename T>
  static HWY_NOINLINE void run(const ForwardBlock<T>& g, int64_t o, int64_t panel, int64_t column) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d));
    const int64_t at = (panel * g.out + o) * kPanel<T> + column;
    T* const sums = (g.z != nullptr ? g.z : g.y) + at;
    Vec<T> acc[kRows][kVectors];
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const Vec<T> start = hn::Set(d, g.bias != nullptr ? g.bias[o + m] : T(0));
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        acc[m][j] = g.depth.begin == 0 ? start : hn::LoadU(d, sums + m * kPanel<T> + j * lanes);
      }
    }
    accumulate<kRows, kVectors, Along::k, T>(
        g.depth.end - g.depth.begin, g.block + (o - g.row) * g.ld, g.ld,
        g.x + (panel * g.in + g.depth.begin) * kPanel<T> + column, kPanel<T>, acc);
    const bool complete = g.depth.end == g.in;
    if (g.z != nullptr || !complete) store(acc, sums);
    if (!complete) return;
    if (g.act == ActivationKind::relu) {
      RIDGELINE_UNROLL
      for (int m = 0; m < kRows; ++m) {
        RIDGELINE_UNROLL
        for (int j = 0; j < kVectors; ++j) acc[m][j] = hn::Max(hn::Zero(d), acc[m][j]);
      }
    }
    store(acc, g.y + at);
    if (g.act == ActivationKind::none || g.act == ActivationKind::relu) return;
    finish(g.act, g.y + at, kRows, kVectors);
  }

  // Applies an activation that is not applied in registers. It is not inlined, because the code of
  // all activations is larger than that of a tile.
  template <typename T>
  static HWY_NOINLINE void finish(SimdActivation act, T* y, int rows, int vectors) {
    const Tag<T> d;
    for (int m = 0; m < rows; ++m, y += kPanel<T>) {
      for (int j = 0; j < vectors; ++j) {
        T* at = y + j * int64_t(hn::Lanes(d));
        hn::StoreU(activate(d, act, hn::LoadU(d, at)), d, at);
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

// Rows of w in the order in which they are added: from the first row on, or (next = -1) down.
struct DepthRows {
  int64_t first, count, next;
};

// The blocks of a depth. A depth that is a part of `out` is the rows that this thread writes. Its
// second half is read from the end, for the reason that towards_middle() gives.
struct DepthBlocks {
  Range up, down;

  DepthBlocks(Range depth, int64_t out) {
    const bool whole = depth.begin == 0 && depth.end == out;
    const int64_t middle = whole ? depth.end : (depth.begin + depth.end + 1) / 2;
    up = {depth.begin, middle};
    down = {middle, depth.end};
  }
  static int64_t blocks(Range rows) {
    return (rows.end - rows.begin + kDepthBlock - 1) / kDepthBlock;
  }
  int64_t count() const { return blocks(up) + blocks(down); }
  DepthRows at(int64_t block) const {
    if (block < blocks(up)) {
      const int64_t first = up.begin + block * kDepthBlock;
      return {first, std::min(kDepthBlock, up.end - first), 1};
    }
    const int64_t end = down.end - (block - blocks(up)) * kDepthBlock;
    return {end - 1, std::min(kDepthBlock, end - down.begin), -1};
  }
};

// A block of w, and the part of the sums that it gives.
template <typename T>
struct DepthBlock : InputGradArgs<T> {
  DepthRows rows;
  int64_t column;  // the first of w
  const T* block;
  int64_t ld;  // from a row of the block to that which is added next
};

struct InputGradTile {
  static constexpr int kMostRows = kTileRows;

  template <int kRows, int kVectors, typename T>
  static HWY_NOINLINE void run(const DepthBlock<T>& g, int64_t i, int64_t panel, int64_t column) {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d));
    const int64_t at = (panel * g.in + i) * kPanel<T> + column;
    Vec<T> acc[kRows][kVectors];
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        acc[m][j] = g.add ? hn::LoadU(d, g.dx + at + m * kPanel<T> + j * lanes) : hn::Zero(d);
      }
    }
    accumulate<kRows, kVectors, Along::m, T>(
        g.rows.count, g.block + (i - g.column), g.ld,
        g.dz + (panel * g.out + g.rows.first) * kPanel<T> + column, g.rows.next * kPanel<T>, acc);
    if (g.act == ActivationKind::relu) {
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
    if (g.act == ActivationKind::none || g.act == ActivationKind::relu) return;
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

// Computes the tile's rows in the given columns of one panel.
template <class Tile, typename T, class Args>
HWY_INLINE void run_columns(const Args& g, int64_t row, int64_t height, int64_t panel,
                            Range columns) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  int64_t column = std::max<int64_t>(0, columns.begin - panel * kPanel<T>);
  const int64_t stop = std::min(kPanel<T>, columns.end - panel * kPanel<T>);
  for (; column + lanes < stop; column += 2 * lanes) {
    run_tile<Tile, Tile::kMostRows, 2>(height, g, row, panel, column);
  }
  if (column < stop) run_tile<Tile, Tile::kMostRows, 1>(height, g, row, panel, column);
}

// The rows of a result in tiles of nearly equal height.
struct Tiles {
  Range rows;
  int64_t count;

  Tiles(Range of, int64_t most) : rows(of), count((of.end - of.begin + most - 1) / most) {}
  int64_t begin(int64_t tile) const { return rows.begin + (rows.end - rows.begin) * tile / count; }
  int64_t height(int64_t tile) const { return begin(tile + 1) - begin(tile); }
};

template <typename T>
HWY_INLINE void copy_rows(const ForwardBlock<T>& part, int64_t row, int64_t height, T* to,
                          int64_t ld) {
  for (int64_t m = 0; m < height; ++m) {
    std::copy_n(part.w + (row + m) * part.in + part.depth.begin, part.depth.end - part.depth.begin,
                to + m * ld);
  }
}

// Prefetches rows that a later tile copies into the second-level cache.
template <typename T>
HWY_INLINE void prefetch_rows_of(const ForwardBlock<T>& part, int64_t row, int64_t end) {
  constexpr int64_t kLine = 64 / int64_t{sizeof(T)};
  for (; row < end; ++row) {
    for (int64_t k = part.depth.begin; k < part.depth.end; k += kLine) {
      __builtin_prefetch(part.w + row * part.in + k, 0, 2);
    }
  }
}

// Each block of the depth is multiplied by all rows before the next one, so that its part of x
// stays in the second-level cache and w is read once for all of a group's panels.
template <typename T>
void forward(const ForwardArgs<T>& g, Range rows, Range columns) {
  if (rows.end <= rows.begin || columns.end <= columns.begin) return;
  const Tiles tiles(rows, ForwardTile::kMostRows);
  const int64_t first = columns.begin / kPanel<T>;
  const int64_t last = (columns.end + kPanel<T> - 1) / kPanel<T>;
  constexpr int64_t kLine = 64 / int64_t{sizeof(T)}, kCopied = kCopiedColumns + kLine;
  HWY_ALIGN T copied[ForwardTile::kMostRows * kCopied];
  const bool copies = g.in * int64_t{sizeof(T)} % kAliasBytes == 0 && last - first > 1;
  const int64_t depth = copies ? std::min(g.in, kCopiedColumns) : g.in;
  const int64_t panel_bytes = depth * kPanel<T> * int64_t{sizeof(T)};
  const int64_t group = std::max<int64_t>(1, kPanelGroupBytes / std::max<int64_t>(1, panel_bytes));
  for (int64_t begin = first; begin < last; begin += group) {
    const int64_t end = std::min(begin + group, last);
    ForwardBlock<T> part{g, {0, 0}, g.w, 0, g.in};
    do {
      part.depth = {part.depth.end, std::min(part.depth.end + depth, g.in)};
      for (int64_t tile = 0; tile < tiles.count; ++tile) {
        const int64_t row = tiles.begin(tile), height = tiles.height(tile);
        if (copies) {
          copy_rows(part, row, height, copied, kCopied);
          part.block = copied;
          part.row = row;
          part.ld = kCopied;
        }
        for (int64_t panel = begin; panel < end; ++panel) {
          if (copies && tile + 1 < tiles.count) {
            const int64_t next = tiles.height(tile + 1), share = panel - begin;
            prefetch_rows_of(part, tiles.begin(tile + 1) + next * share / (end - begin),
                             tiles.begin(tile + 1) + next * (share + 1) / (end - begin));
          }
          run_columns<ForwardTile, T>(part, row, height, panel, columns);
        }
      }
    } while (part.depth.end < g.in);
  }
}

// Prefetches the lines that a block has at this column of w. Inlined always: gcc drops calls of
// functions that only prefetch.
template <typename T>
HWY_INLINE void prefetch_block(const T* w, int64_t in, DepthRows rows, int64_t column) {
  for (int64_t k = 0; k < rows.count; ++k) {
    hwy::Prefetch(w + (rows.first + k * rows.next) * in + column);
  }
}

// Copies columns [column, column + width) of these rows of w.
template <typename T>
HWY_INLINE void pack_block(const T* w, int64_t in, DepthRows rows, int64_t column, int64_t width,
                           T* HWY_RESTRICT block) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t k = 0; k < rows.count; ++k, block += kBlockColumns<T>) {
    const T* from = w + (rows.first + k * rows.next) * in + column;
    if (width == kBlockColumns<T>) {
      for (int64_t j = 0; j < width; j += lanes) hn::Store(hn::LoadU(d, from + j), d, block + j);
    } else {
      std::copy_n(from, width, block);
    }
  }
}

template <typename T>
void input_grad(const InputGradArgs<T>& g, Range rows, Range columns) {
  if (rows.end <= rows.begin || columns.end <= columns.begin) return;
  HWY_ALIGN T packed[kDepthBlock * kBlockColumns<T>];
  const DepthBlocks blocks(g.depth, g.out);
  const bool packs = (g.depth.end - g.depth.begin) * g.in * int64_t{sizeof(T)} > kNearWeights;
  const int64_t last_panel = (columns.end + kPanel<T> - 1) / kPanel<T>;
  for (int64_t i = rows.begin; i < rows.end; i += kBlockColumns<T>) {
    const Tiles tiles({i, std::min(i + kBlockColumns<T>, rows.end)}, InputGradTile::kMostRows);
    // An empty depth gives zeros.
    for (int64_t b = 0; b < std::max<int64_t>(1, blocks.count()); ++b) {
      const bool complete = b + 1 >= blocks.count();
      DepthBlock<T> part{g, blocks.count() > 0 ? blocks.at(b) : DepthRows{0, 0, 1}, i, packed,
                         kBlockColumns<T>};
      part.add = g.add || b > 0;
      if (!complete) part.act = SimdActivation();
      if (packs) {
        pack_block(g.w, g.in, part.rows, i, tiles.rows.end - i, packed);
      } else {
        part.block = g.w + part.rows.first * g.in + i;
        part.ld = part.rows.next * g.in;
      }
      if (blocks.count() > 0) {
        prefetch_block(g.w, g.in, blocks.at(complete ? 0 : b + 1),
                       complete ? i + kBlockColumns<T> : i);
      }
      for (int64_t panel = columns.begin / kPanel<T>; panel < last_panel; ++panel) {
        for (int64_t tile = 0; tile < tiles.count; ++tile) {
          run_columns<InputGradTile, T>(part, tiles.begin(tile), tiles.height(tile), panel,
                                        columns);
        }
      }
    }
  }
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
