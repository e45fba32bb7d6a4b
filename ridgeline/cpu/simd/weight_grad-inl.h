// dw = dz^T x, dense or with the zeros of dz skipped, compiled once per instruction set.
#if defined(RIDGELINE_CPU_SIMD_WEIGHT_GRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CPU_SIMD_WEIGHT_GRAD_INL_H_
#undef RIDGELINE_CPU_SIMD_WEIGHT_GRAD_INL_H_
#else
#define RIDGELINE_CPU_SIMD_WEIGHT_GRAD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/gemm.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kGradVectors = kManyRegisters ? 3 : 2;
// Two vectors of half the length leave cache space for more rows, between which the sums stay in
// registers.
constexpr int64_t kDenseBlock = kManyRegisters ? kGradBlock : 2 * kGradBlock;
// A row of a sparse product keeps one vector of sums per vector of x: eight of 64 rows fill a
// first-level cache. More vectors of fewer rows are not faster (14 of 32 rows: 1.54 cycles per
// product instead of 1.33).
constexpr int kSparseVectors = kManyRegisters ? 8 : 7;

// The use of a finished or partial sum of dw.
struct Pass {
  bool first, last;  // partial sums are read from dw unless first, kept there unless last
  int64_t column_end;
};

// Accesses a vector of which `live` lanes exist: memory past a row's end may be another thread's.
template <bool kWhole, typename T>
HWY_INLINE Vec<T> load_live(const T* from, int64_t live) {
  const Tag<T> d;
  if constexpr (kWhole) {
    return hn::LoadU(d, from);
  } else {
    return hn::MaskedLoad(hn::FirstN(d, size_t(live)), d, from);
  }
}

// Handles dw's vector at [at], of which `live` lanes exist.
template <bool kWhole, typename T>
HWY_INLINE void finish(const WeightGradArgs<T>& g, bool last, Vec<T> sum, int64_t at,
                       int64_t live) {
  const Tag<T> d;
  const auto put = [&](Vec<T> v, T* to) HWY_ATTR {
    if constexpr (kWhole) {
      hn::StoreU(v, d, to);
    } else {
      hn::BlendedStore(v, hn::FirstN(d, size_t(live)), d, to);
    }
  };
  if (!last || !g.update) {
    put(sum, g.dw + at);
    return;
  }
  const Vec<T> w = load_live<kWhole>(g.w + at, live);
  Vec<T> step = hn::MulAdd(hn::Set(d, g.sgd.weight_decay), w, sum);
  if (g.mw != nullptr) {
    const Vec<T> momentum = hn::Set(d, g.sgd.momentum);
    const Vec<T> m = hn::MulAdd(momentum, load_live<kWhole>(g.mw + at, live), step);
    put(m, g.mw + at);
    step = g.sgd.nesterov ? hn::MulAdd(momentum, m, step) : m;
  }
  put(hn::NegMulAdd(hn::Set(d, g.sgd.lr), step, w), g.w + at);
}

// Returns the tile or row that is visited at place `turn` if `count` of them are visited from both
// ends towards the middle. The hardware prefetcher runs past the last row that is visited. In this
// order it reaches rows of this thread. Lines of another thread's rows would have to be invalidated
// here when that thread writes them, which takes 7 to 28 ns a line on an EPYC.
constexpr int64_t towards_middle(int64_t turn, int64_t count) {
  const int64_t half = (count + 1) / 2;
  return turn < half ? turn : count - 1 - (turn - half);
}

// Inlined always: gcc drops calls of functions that only prefetch.
template <int kRows, int kVectors, typename T>
HWY_INLINE void prefetch_rows(const T* from, int64_t stride) {
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      hwy::Prefetch(from + m * stride + j * int64_t(hn::Lanes(Tag<T>())));
    }
  }
}

// Prefetches what finish() will read of a later tile, which begins at row `o` (-1: there is none),
// while this one is computed: rows of a matrix are too far apart for the hardware prefetcher.
template <int kRows, int kVectors, typename T>
HWY_INLINE void prefetch_tile(const WeightGradArgs<T>& g, Pass pass, int64_t o, int64_t i) {
  if (o < 0) return;
  const bool updates = pass.last && g.update;
  const int64_t at = o * g.in + i;
  prefetch_rows<kRows, kVectors>((updates ? g.w : g.dw) + at, g.in);
  if (updates && g.mw != nullptr) prefetch_rows<kRows, kVectors>(g.mw + at, g.in);
}

// Computes rows [o, o + kRows) x vectors from `i` on, over batch rows [begin, end). The next tile
// begins at row `next` (-1: there is none).
template <int kRows, int kVectors, bool kWhole, typename T>
HWY_NOINLINE void grad_tile(const WeightGradArgs<T>& g, Pass pass, int64_t o, int64_t next,
                            int64_t i, int64_t begin, int64_t end) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  prefetch_tile<kRows, kVectors>(g, pass, next, i);
  Vec<T> acc[kRows][kVectors];
  if (pass.first) {
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) acc[m][j] = hn::Zero(d);
    }
  } else {
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        const int64_t column = i + j * lanes;
        acc[m][j] = load_live<kWhole>(g.dw + (o + m) * g.in + column, pass.column_end - column);
      }
    }
  }
  for (int64_t n = begin; n < end; n += kPanel<T>) {  // begin is a multiple of a panel
    accumulate<kRows, kVectors, Along::k, T>(std::min(kPanel<T>, end - n),
                                             g.dz + (n / kPanel<T> * g.out + o) * kPanel<T>,
                                             kPanel<T>, g.x + n * g.ldx + i, g.ldx, acc);
  }
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      const int64_t column = i + j * lanes;
      finish<kWhole>(g, pass.last, acc[m][j], (o + m) * g.in + column, pass.column_end - column);
    }
  }
}

template <int kRows, int kVectors, bool kWhole, typename T>
HWY_INLINE void run_grad_tile(int64_t rows, const WeightGradArgs<T>& g, Pass pass, int64_t o,
                              int64_t next, int64_t i, int64_t begin, int64_t end) {
  if (rows == kRows) {
    grad_tile<kRows, kVectors, kWhole>(g, pass, o, next, i, begin, end);
  } else if constexpr (kRows > 1) {
    run_grad_tile<kRows - 1, kVectors, kWhole>(rows, g, pass, o, next, i, begin, end);
  }
}

template <typename T>
void grad_block(const WeightGradArgs<T>& g, Pass pass, Range rows, Range columns, int64_t begin,
                int64_t end) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  const int64_t count = rows.end - rows.begin;
  const int64_t tiles = (count + kTileRows - 1) / kTileRows;
  const auto first_row = [&](int64_t tile) { return rows.begin + count * tile / tiles; };
  for (int64_t i = columns.begin; i < columns.end;) {
    const int64_t left = (columns.end - i) / lanes;  // whole vectors
    // Four vectors are taken as two pairs: a single vector loads more than it multiplies.
    const int64_t vectors = left == 4 ? 2 : std::min<int64_t>(left, kGradVectors);
    for (int64_t turn = 0; turn < tiles; ++turn) {
      const int64_t tile = towards_middle(turn, tiles);
      const int64_t o = first_row(tile), height = first_row(tile + 1) - o;
      const int64_t next = turn + 1 == tiles ? -1
                                             : std::min(first_row(towards_middle(turn + 1, tiles)),
                                                        rows.end - height);
      if (vectors == kGradVectors) {
        run_grad_tile<kTileRows, kGradVectors, true>(height, g, pass, o, next, i, begin, end);
      } else if (vectors == 2) {
        run_grad_tile<kTileRows, 2, true>(height, g, pass, o, next, i, begin, end);
      } else if (vectors == 1) {
        run_grad_tile<kTileRows, 1, true>(height, g, pass, o, next, i, begin, end);
      } else {
        run_grad_tile<kTileRows, 1, false>(height, g, pass, o, next, i, begin, end);
      }
    }
    i += std::max<int64_t>(vectors, 1) * lanes;
  }
}

// --- Weight gradient with the zeros of dz skipped ---

// The nonzeros of dz[begin, end), row by row of dw: kSparseGradBlock entries for each.
template <typename T>
struct Nonzeros {
  using Offset = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

  Nonzeros(void* scratch, int64_t out)
      : values(static_cast<T*>(scratch)),
        offsets(reinterpret_cast<Offset*>(values + out * kSparseGradBlock)),
        counts(reinterpret_cast<int64_t*>(offsets + out * kSparseGradBlock)) {}

  T* values;
  Offset* offsets;  // where the row of x begins, relative to row `begin`
  int64_t* counts;
};

// AVX-512 has an instruction that compresses selected lanes. On other targets Highway uses a lookup
// table, which gcc 12 copies to the stack at each call: 45 ns per vector, where one value after the
// other takes 4.
constexpr bool kCompresses = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3;

// Lists row o of dw; returns the count. A store at `count` is never past the element just read, so
// no list overflows.
template <typename T>
HWY_INLINE int64_t list_row(const WeightGradArgs<T>& g, int64_t o, int64_t begin, int64_t end,
                            T* values, typename Nonzeros<T>::Offset* offsets) {
  using Offset = typename Nonzeros<T>::Offset;
  const auto at = [&](int64_t n) {
    return g.dz + (n / kPanel<T> * g.out + o) * kPanel<T> + n % kPanel<T>;
  };
  int64_t count = 0;
  if constexpr (kCompresses) {
    const Tag<T> d;
    const hn::RebindToSigned<Tag<T>> di;
    const int64_t lanes = int64_t(hn::Lanes(d));
    for (int64_t n = begin; n < end; n += lanes) {
      const Vec<T> v = hn::LoadU(d, at(n));
      auto keep = hn::Ne(v, hn::Zero(d));
      if (n + lanes > end) keep = hn::And(keep, hn::FirstN(d, size_t(end - n)));
      const auto offset = hn::Mul(hn::Add(hn::Iota(di, 0), hn::Set(di, Offset(n - begin))),
                                  hn::Set(di, Offset(g.ldx)));
      hn::StoreU(hn::Compress(v, keep), d, values + count);
      hn::StoreU(hn::Compress(offset, hn::RebindMask(di, keep)), di, offsets + count);
      count += int64_t(hn::CountTrue(d, keep));
    }
  } else {
    for (int64_t n = begin; n < end; n += kPanel<T>) {  // begin is a multiple of a panel
      const T* from = at(n);
      const int64_t rows = std::min(kPanel<T>, end - n);
      for (int64_t r = 0; r < rows; ++r) {
        values[count] = from[r];
        offsets[count] = Offset((n - begin + r) * g.ldx);
        count += from[r] != T(0);
      }
    }
  }
  return count;
}

// Returns the count.
template <typename T>
int64_t list_nonzeros(const WeightGradArgs<T>& g, Range rows, int64_t begin, int64_t end,
                      const Nonzeros<T>& list) {
  int64_t total = 0;
  for (int64_t o = rows.begin; o < rows.end; ++o) {
    list.counts[o] = list_row(g, o, begin, end, list.values + o * kSparseGradBlock,
                              list.offsets + o * kSparseGradBlock);
    total += list.counts[o];
  }
  return total;
}

// A later row, whose sums are prefetched, is `next` (-1: there is none).
template <int kVectors, bool kWhole, typename T>
HWY_NOINLINE void sparse_row(const WeightGradArgs<T>& g, Pass pass, const Nonzeros<T>& list,
                             const T* HWY_RESTRICT x, int64_t o, int64_t next, int64_t i) {
  const Tag<T> d;
  prefetch_tile<1, kVectors>(g, pass, next, i);
  const int64_t lanes = int64_t(hn::Lanes(d));
  const T* HWY_RESTRICT values = list.values + o * kSparseGradBlock;
  const auto* HWY_RESTRICT offsets = list.offsets + o * kSparseGradBlock;
  const int64_t count = list.counts[o];
  const int64_t at = o * g.in + i;
  Vec<T> acc[kVectors];
  if (pass.first) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) acc[j] = hn::Zero(d);
  } else {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      acc[j] = load_live<kWhole>(g.dw + at + j * lanes, pass.column_end - i - j * lanes);
    }
  }
  for (int64_t e = 0; e < count; ++e) {
    const T* row = x + i + offsets[e];
    const Vec<T> value = hn::Set(d, values[e]);
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      const Vec<T> v = load_live<kWhole>(row + j * lanes, pass.column_end - i - j * lanes);
      acc[j] = hn::MulAdd(value, v, acc[j]);
    }
  }
  RIDGELINE_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    finish<kWhole>(g, pass.last, acc[j], at + j * lanes, pass.column_end - i - j * lanes);
  }
}

// Sums of more bytes come from the third-level cache or from memory, and are prefetched three rows
// ahead: one row takes about 80 ns.
constexpr int64_t kNearBytes = 512 << 10;

template <int kVectors, typename T>
HWY_INLINE void run_sparse_rows(int64_t vectors, const WeightGradArgs<T>& g, Pass pass, Range rows,
                                const Nonzeros<T>& list, const T* x, int64_t i) {
  if (vectors == kVectors) {
    const int64_t count = rows.end - rows.begin;
    const int64_t ahead = count * g.in * int64_t{sizeof(T)} > kNearBytes ? 3 : count;
    for (int64_t turn = 0; turn < count; ++turn) {
      const int64_t next =
          turn + ahead < count ? rows.begin + towards_middle(turn + ahead, count) : -1;
      sparse_row<kVectors, true>(g, pass, list, x, rows.begin + towards_middle(turn, count), next,
                                 i);
    }
  } else if constexpr (kVectors > 1) {
    run_sparse_rows<kVectors - 1>(vectors, g, pass, rows, list, x, i);
  }
}

template <typename T>
void sparse_grad_block(const WeightGradArgs<T>& g, Pass pass, Range rows, Range columns,
                       int64_t begin, const Nonzeros<T>& list) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  const T* x = g.x + begin * g.ldx;
  const int64_t whole = (columns.end - columns.begin) / lanes;
  const int64_t blocks = (whole + kSparseVectors - 1) / kSparseVectors;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = whole * block / blocks, next = whole * (block + 1) / blocks;
    run_sparse_rows<kSparseVectors>(next - first, g, pass, rows, list, x,
                                    columns.begin + first * lanes);
  }
  const int64_t tail = columns.begin + whole * lanes;
  if (tail == columns.end) return;
  for (int64_t o = rows.begin; o < rows.end; ++o)
    sparse_row<1, false>(g, pass, list, x, o, -1, tail);
}

template <typename T>
void bias_grad(const WeightGradArgs<T>& g, Range rows) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t o = rows.begin; o < rows.end; ++o) {
    Vec<T> even = hn::Zero(d),
           odd = hn::Zero(d);  // two independent sums
    const auto at = [&](int64_t n) HWY_ATTR {
      return hn::LoadU(d, g.dz + (n / kPanel<T> * g.out + o) * kPanel<T> + n % kPanel<T>);
    };
    int64_t n = 0;
    for (; n + 2 * lanes <= g.n; n += 2 * lanes) {
      even = hn::Add(even, at(n));
      odd = hn::Add(odd, at(n + lanes));
    }
    for (; n < g.n; n += lanes) {
      Vec<T> v = at(n);
      if (n + lanes > g.n) v = hn::IfThenElseZero(hn::FirstN(d, size_t(g.n - n)), v);
      even = hn::Add(even, v);
    }
    const T part = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
    const T db = g.first ? part : part + g.db[o];
    if (!g.update || !g.last) {
      g.db[o] = db;
      continue;
    }
    T step = db + g.sgd.weight_decay * g.b[o];
    if (g.mb != nullptr) {
      const T m = g.sgd.momentum * g.mb[o] + step;
      g.mb[o] = m;
      step = g.sgd.nesterov ? step + g.sgd.momentum * m : m;
    }
    g.b[o] -= g.sgd.lr * step;
  }
}

// Above this share of nonzeros the dense tile is faster: at one half, lists take 0.7 of its
// time.
constexpr double kSparseDensity = 0.65;

// With fewer vectors of x a nonzero has too few independent sums.
constexpr int64_t kLeastSparseVectors = 4;

template <typename T>
void weight_grad(const WeightGradArgs<T>& g, Range rows, Range columns) {
  if (rows.end <= rows.begin || columns.end <= columns.begin) return;
  const bool sparse =
      g.sparse && columns.end - columns.begin >= kLeastSparseVectors * int64_t(hn::Lanes(Tag<T>()));
  if (columns.end == g.in && (g.update ? g.b != nullptr : g.db != nullptr)) bias_grad(g, rows);
  const int64_t block = sparse ? kSparseGradBlock : kDenseBlock;
  const Nonzeros<T> list(g.sparse_scratch, g.out);
  for (int64_t begin = 0; begin < g.n; begin += block) {
    const int64_t end = std::min(begin + block, g.n);
    const Pass pass{g.first && begin == 0, g.last && end == g.n, columns.end};
    if (sparse) {
      const int64_t nonzeros = list_nonzeros(g, rows, begin, end, list);
      if (double(nonzeros) < kSparseDensity * double((end - begin) * (rows.end - rows.begin))) {
        sparse_grad_block(g, pass, rows, columns, begin, list);
        continue;
      }
    }
    grad_block(g, pass, rows, columns, begin, end);
  }
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
