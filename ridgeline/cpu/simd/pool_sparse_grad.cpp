#include "ridgeline/cpu/simd/pool_sparse_grad.h"

#include <algorithm>
#include <cmath>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/pool_sparse_grad.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace pool_sparse_grad {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of sums in registers: of 16, 12 leave enough for their operands.
constexpr int kMostVectors = 12;

// Images whose maps stay in the second-level cache during the loop over outputs.
constexpr int64_t kImagesAtOnce = 8;

// sums[r * ld ...] += sum of the scaled runs that begin at base + r * pitch + place; kRows rows of
// kVectors vectors.
template <int kRows, int kVectors, typename T>
HWY_NOINLINE void add_runs(const ScaledRun<T>* runs, int64_t count, const T* HWY_RESTRICT base,
                           int64_t pitch, T* HWY_RESTRICT sums, int64_t ld) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  Vec<T> acc[kRows][kVectors];
  RIDGELINE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) acc[r][j] = hn::LoadU(d, sums + r * ld + j * lanes);
  }
  for (int64_t e = 0; e < count; ++e) {
    const Vec<T> value = hn::Set(d, runs[e].value);
    const T* from = base + runs[e].place;
    RIDGELINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        acc[r][j] = hn::MulAdd(value, hn::LoadU(d, from + r * pitch + j * lanes), acc[r][j]);
      }
    }
  }
  RIDGELINE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) hn::StoreU(acc[r][j], d, sums + r * ld + j * lanes);
  }
}

template <typename T>
using AddRuns = void (*)(const ScaledRun<T>*, int64_t, const T*, int64_t, T*, int64_t);
template <typename T>
constexpr AddRuns<T> kAddRow[] = {nullptr,           add_runs<1, 1, T>,  add_runs<1, 2, T>,
                                  add_runs<1, 3, T>, add_runs<1, 4, T>,  add_runs<1, 5, T>,
                                  add_runs<1, 6, T>, add_runs<1, 7, T>,  add_runs<1, 8, T>,
                                  add_runs<1, 9, T>, add_runs<1, 10, T>, add_runs<1, 11, T>,
                                  add_runs<1, 12, T>};

// Adds one row of `elements` numbers.
template <typename T>
void add_row(const ScaledRun<T>* runs, int64_t count, const T* base, int64_t elements, T* sums) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>())), vectors = (elements + lanes - 1) / lanes;
  const int64_t parts = (vectors + kMostVectors - 1) / kMostVectors;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = vectors * part / parts, last = vectors * (part + 1) / parts;
    kAddRow<T>[last - first](runs, count, base + first * lanes, 0, sums + first * lanes, 0);
  }
}

// Adds several rows at once if each is one vector, because the additions of a single row would wait
// for each other.
template <typename T>
AddRuns<T> short_rows(int64_t rows, int64_t elements) {
  if (elements > int64_t(hn::Lanes(Tag<T>()))) return nullptr;
  switch (rows) {
    case 3:
      return add_runs<3, 1, T>;
    case 5:
      return add_runs<5, 1, T>;
    case 7:
      return add_runs<7, 1, T>;
    default:
      return nullptr;
  }
}

// Returns f' at y, for activations that do not decrease.
template <ActivationKind kAct, class D, class V = hn::Vec<D>>
HWY_INLINE V slope_at(D d, V y) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  if constexpr (kAct == ActivationKind::relu)
    return hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), one);
  if constexpr (kAct == ActivationKind::tanh) return hn::NegMulAdd(y, y, one);
  if constexpr (kAct == ActivationKind::sigmoid) return hn::NegMulAdd(y, y, y);
  return one;
}

// Returns the lanes in which b is chosen although a comes first. The chosen pixel is the first of
// the largest, or the first NaN.
template <class V>
HWY_INLINE auto beats(V b, V a) {
  return hn::Or(hn::Gt(b, a), hn::AndNot(hn::Eq(b, b), hn::Eq(a, a)));
}

// A vector's left and right neighbours among the numbers up to `end`, with zeros past it.
template <class D, typename T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE void load_pairs(D d, const T* from, const T* end, V& left, V& right) {
  T padded[2 * kPanel<T>];  // two vectors at least
  if (end - from < 2 * int64_t(hn::Lanes(d))) {
    std::fill(padded, padded + 2 * kPanel<T>, T(0));
    std::copy(from, end, padded);
    from = padded;
  }
  hn::LoadInterleaved2(d, from, left, right);
}

template <typename T>
void arrange(const PoolSparseGradArgs<T>& g, Range outputs) {
  const DirectShape& s = g.shape;
  const int64_t ld = g.filter_ld();
  for (int64_t o = outputs.begin; o < outputs.end; ++o) {
    for (int64_t u = 0; u < s.kernel_h; ++u) {
      T* to = g.filters + (o * s.kernel_h + u) * ld;
      std::fill(to, to + ld, T(0));
      for (int64_t v = 0; v < s.kernel_w; ++v) {
        for (int64_t c = 0; c < s.c; ++c) {
          to[(v + 1) * s.c + c] = g.w[((o * s.c + c) * s.kernel_h + u) * s.kernel_w + v];
        }
      }
    }
  }
}

template <typename T>
void fill_map(const PoolSparseGradArgs<T>& g, int64_t image) {
  const DirectShape& s = g.shape;
  T* map = g.map + image * g.map_size();
  std::fill(map, map + g.map_size(), T(0));
  const T* x = g.x + image * s.c * s.h * s.w;
  for (int64_t row = 0; row < s.h; ++row) {
    T* to = map + ((row + s.pad_h) * s.pitch() + s.pad_w) * s.c;
    for (int64_t c = 0; c < s.c; ++c) {
      const T* from = x + (c * s.h + row) * s.w;
      for (int64_t q = 0; q < s.w; ++q) to[q * s.c + c] = from[q];
    }
  }
}

// Finds, for each window of a vector (side by side in rows p and p + 1), the pixel that receives
// its gradient (0 to 3, row by row), and that gradient.
template <ActivationKind kAct, typename T>
void find_pixels(const PoolSparseGradArgs<T>& g, const T* upper, const T* dy, T* pixel, T* value) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), planes = g.n * g.shape.k, out_w = g.shape.out_w();
  const T *a_end = g.a + planes * g.shape.out_h() * out_w, *dy_end = g.dy + planes * g.windows();
  Vec<T> left, right, lower_left, lower_right;
  load_pairs(d, upper, a_end, left, right);
  load_pairs(d, upper + out_w, a_end, lower_left, lower_right);
  const auto upper_wins = beats(right, left), lower_wins = beats(lower_right, lower_left);
  const Vec<T> above = hn::IfThenElse(upper_wins, right, left);
  const Vec<T> below = hn::IfThenElse(lower_wins, lower_right, lower_left);
  const auto down = beats(below, above);
  const auto number = [&](int which) { return hn::Set(d, T(which)); };
  const Vec<T> of_upper = hn::IfThenElse(upper_wins, number(1), number(0));
  const Vec<T> of_lower = hn::IfThenElse(lower_wins, number(3), number(2));
  hn::StoreU(hn::IfThenElse(down, of_lower, of_upper), d, pixel);
  T padded[kPanel<T>];  // a vector at least
  if (dy_end - dy < lanes) {
    std::fill(padded, padded + kPanel<T>, T(0));
    std::copy(dy, dy_end, padded);
    dy = padded;
  }
  const Vec<T> most = hn::IfThenElse(down, below, above);
  const Vec<T> up = hn::LoadU(d, dy);
  if constexpr (kAct == ActivationKind::relu) {  // not times 0, which would pass a NaN on
    hn::StoreU(hn::IfThenElseZero(hn::Gt(most, hn::Zero(d)), up), d, value);
  } else {
    hn::StoreU(hn::Mul(up, slope_at<kAct>(d, most)), d, value);
  }
}

// Makes the runs of an output of an image over its windows; for dx, they are appended to the lists
// of each window and its rows. There are no branches, because the largest pixel is unpredictable.
template <ActivationKind kAct, bool kLists, typename T>
void find_runs(const PoolSparseGradArgs<T>& g, int64_t image, int64_t o,
               const PoolSparseScratch<T>& own) {
  using Place = decltype(ScaledRun<T>::place);
  const DirectShape& s = g.shape;
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>())), out_w = s.out_w(), columns = out_w / 2;
  const int64_t plane = image * s.k + o, windows = g.windows();
  const T *a = g.a + plane * s.out_h() * out_w, *dy = g.dy + plane * windows;
  const auto filter = Place(o * s.kernel_h * g.filter_ld());
  const Place channels = Place(s.c), down = Place(s.pitch()) * channels;
  const Place offset[4] = {0, channels, down, down + channels};
  ScaledRun<T>* runs = g.runs + plane * windows;
  int64_t list = o / kWindowBlock * windows * 2;
  for (int64_t p = 0; p + 1 < s.out_h(); p += 2) {
    for (int64_t q = 0; q < columns; q += lanes) {
      T pixel[kPanel<T>], value[kPanel<T>];
      find_pixels<kAct>(g, a + p * out_w + 2 * q, dy + p / 2 * columns + q, pixel, value);
      Place place = Place(p) * down + Place(2 * q) * channels;
      for (int64_t j = 0; j < std::min(lanes, columns - q); ++j, place += 2 * channels, list += 2) {
        const int which = int(pixel[j]);
        const int64_t some = value[j] != T(0);
        *runs = {place + offset[which], value[j]};
        runs += some;
        if constexpr (kLists) {
          const int64_t at = list + which / 2;
          own.runs[at * kWindowBlock + own.counts[at]] = {filter + (1 - which % 2) * channels,
                                                          value[j]};
          own.counts[at] += some;
        }
      }
    }
  }
  g.counts[plane] = runs - (g.runs + plane * windows);
}

template <typename T>
using FindRuns = void (*)(const PoolSparseGradArgs<T>&, int64_t, int64_t,
                          const PoolSparseScratch<T>&);

template <bool kLists, typename T>
FindRuns<T> find_runs_of(SimdActivation act) {
  switch (act) {
    case ActivationKind::relu:
      return find_runs<ActivationKind::relu, kLists, T>;
    case ActivationKind::tanh:
      return find_runs<ActivationKind::tanh, kLists, T>;
    case ActivationKind::sigmoid:
      return find_runs<ActivationKind::sigmoid, kLists, T>;
    default:
      return find_runs<ActivationKind::none, kLists, T>;
  }
}

template <typename T>
void input_gradient(const PoolSparseGradArgs<T>& g, int64_t image,
                    const PoolSparseScratch<T>& own) {
  const DirectShape& s = g.shape;
  const int64_t columns = s.out_w() / 2, windows = g.windows(), pitch = s.pitch() * s.c;
  const int64_t run = (s.kernel_w + 1) * s.c;
  std::fill(own.map, own.map + g.map_size(), T(0));
  for (int64_t first = 0; first < PoolSparseScratch<T>::lists(g);
       first += 2 * windows) {  // a block
    for (int64_t u = 0; u < s.kernel_h; ++u) {
      for (int64_t at = 0; at < 2 * windows; ++at) {
        const int64_t list = first + at, window = at / 2;
        if (own.counts[list] == 0) continue;
        const int64_t row = window / columns * 2 + at % 2 + u, column = window % columns * 2;
        add_row(own.runs + list * kWindowBlock, own.counts[list], g.filters + u * g.filter_ld(),
                run, own.map + row * pitch + column * s.c);
      }
    }
  }
  T* dx = g.dx + image * s.c * s.h * s.w;
  for (int64_t row = 0; row < s.h; ++row) {
    const T* from = own.map + (row + s.pad_h) * pitch + s.pad_w * s.c;
    for (int64_t c = 0; c < s.c; ++c) {
      for (int64_t q = 0; q < s.w; ++q) dx[(c * s.h + row) * s.w + q] = from[q * s.c + c];
    }
  }
}

template <typename T>
void images(const PoolSparseGradArgs<T>& g, Range range, const PoolSparseScratch<T>& own) {
  const bool lists = g.dx != nullptr;
  const FindRuns<T> find = lists ? find_runs_of<true, T>(g.act) : find_runs_of<false, T>(g.act);
  for (int64_t image = range.begin; image < range.end; ++image) {
    fill_map(g, image);
    if (lists) std::fill_n(own.counts, PoolSparseScratch<T>::lists(g), int64_t{0});
    for (int64_t o = 0; o < g.shape.k; ++o) find(g, image, o, own);
    if (lists) input_gradient(g, image, own);
  }
}

// Adds rows [begin, end) of an output's filter over some images; `sums` are those of the first of
// these rows.
template <typename T>
void add_images(const PoolSparseGradArgs<T>& g, Range images, int64_t o, Range rows, T* sums) {
  const DirectShape& s = g.shape;
  const int64_t run = s.kernel_w * s.c, ld = g.sums_ld(), pitch = s.pitch() * s.c;
  const AddRuns<T> all = short_rows<T>(s.kernel_h, run);
  for (int64_t image = images.begin; image < images.end; ++image) {
    const int64_t plane = image * s.k + o, count = g.counts[plane];
    const ScaledRun<T>* runs = g.runs + plane * g.windows();
    const T* map = g.map + image * g.map_size();
    if (all != nullptr) {
      all(runs, count, map, pitch, sums, ld);
      continue;
    }
    for (int64_t u = rows.begin; u < rows.end; ++u) {
      add_row(runs, count, map + u * pitch, run, sums + (u - rows.begin) * ld);
    }
  }
}

template <typename T>
T sum_slopes(const PoolSparseGradArgs<T>& g, int64_t o) {
  T sum = 0;
  for (int64_t image = 0; image < g.n; ++image) {
    const int64_t plane = image * g.shape.k + o;
    T of_image = 0;
    for (int64_t e = 0; e < g.counts[plane]; ++e) of_image += g.runs[plane * g.windows() + e].value;
    sum += of_image;
  }
  return sum;
}

// Short rows are summed together, so units are whole filters.
template <typename T>
int64_t grain(const DirectShape& s) {
  return short_rows<T>(s.kernel_h, s.kernel_w * s.c) != nullptr ? s.kernel_h : 1;
}

template <typename T>
void gradient(const PoolSparseGradArgs<T>& g, Range units, const PoolSparseScratch<T>& own) {
  const DirectShape& s = g.shape;
  const int64_t rows = s.kernel_h, ld = g.sums_ld();
  std::fill(own.sums, own.sums + (units.end - units.begin) * ld, T(0));
  const auto for_outputs = [&](auto f) {  // f(o, its rows among the units, their sums)
    for (int64_t o = units.begin / rows; o * rows < units.end; ++o) {
      const Range mine{std::max(units.begin - o * rows, int64_t{0}),
                       std::min(units.end - o * rows, rows)};
      f(o, mine, own.sums + (o * rows + mine.begin - units.begin) * ld);
    }
  };
  for (int64_t i = 0; i < g.n; i += kImagesAtOnce) {
    const Range images{i, std::min(g.n, i + kImagesAtOnce)};
    for_outputs([&](int64_t o, Range mine, T* sums) { add_images(g, images, o, mine, sums); });
  }
  for_outputs([&](int64_t o, Range mine, const T* sums) {
    for (int64_t u = mine.begin; u < mine.end; ++u, sums += ld) {
      for (int64_t c = 0; c < s.c; ++c) {
        for (int64_t v = 0; v < s.kernel_w; ++v) {
          g.dw[((o * s.c + c) * s.kernel_h + u) * s.kernel_w + v] = sums[v * s.c + c];
        }
      }
    }
    if (g.db != nullptr && mine.begin == 0) g.db[o] = sum_slopes(g, o);
  });
}

template <typename T>
constexpr PoolSparseGradFunctions<T> kPoolSparseGrad{arrange<T>, images<T>, grain<T>, gradient<T>};

}  // namespace pool_sparse_grad

RIDGELINE_SIMD_TABLE(PoolSparseGradFunctions, pool_sparse_grad_functions,
                     pool_sparse_grad::kPoolSparseGrad)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(PoolSparseGradFunctions, pool_sparse_grad_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
