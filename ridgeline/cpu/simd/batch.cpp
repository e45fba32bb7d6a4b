#include "ridgeline/cpu/simd/batch.h"

#include <algorithm>
#include <limits>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/batch.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace batch {

// Transposes a 16-byte square of T: 4 x 4 floats or 2 x 2 doubles.
#if HWY_TARGET == HWY_SCALAR
template <typename T>
HWY_INLINE void transpose_square(const T* from, int64_t from_ld, T* to, int64_t to_ld) {
  constexpr int64_t kSquare = 16 / int64_t{sizeof(T)};
  for (int64_t r = 0; r < kSquare; ++r) {
    for (int64_t c = 0; c < kSquare; ++c) to[c * to_ld + r] = from[r * from_ld + c];
  }
}
#else
HWY_INLINE void transpose_square(const float* from, int64_t from_ld, float* to, int64_t to_ld) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> d64;
  const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + from_ld);
  const auto c = hn::LoadU(d, from + 2 * from_ld), e = hn::LoadU(d, from + 3 * from_ld);
  const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
  const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(d64, hn::InterleaveLower(d, c, e));
  const auto ce_high = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ce_low)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ce_low)), d, to + to_ld);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ce_high)), d, to + 2 * to_ld);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ce_high)), d, to + 3 * to_ld);
}

HWY_INLINE void transpose_square(const double* from, int64_t from_ld, double* to, int64_t to_ld) {
  const hn::FixedTag<double, 2> d;
  const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + from_ld);
  hn::StoreU(hn::InterleaveLower(d, a, b), d, to);
  hn::StoreU(hn::InterleaveUpper(d, a, b), d, to + to_ld);
}
#endif

// to[c * to_ld + r] = from[r * from_ld + c]
template <typename T>
HWY_INLINE void transpose(const T* HWY_RESTRICT from, int64_t from_ld, int64_t rows,
                          int64_t columns, T* HWY_RESTRICT to, int64_t to_ld) {
  constexpr int64_t kSquare = 16 / int64_t{sizeof(T)};
  int64_t c = 0;
  for (; c + kSquare <= columns; c += kSquare) {
    int64_t r = 0;
    for (; r + kSquare <= rows; r += kSquare) {
      transpose_square(from + r * from_ld + c, from_ld, to + c * to_ld + r, to_ld);
    }
    for (; r < rows; ++r) {
      for (int64_t k = c; k < c + kSquare; ++k) to[k * to_ld + r] = from[r * from_ld + k];
    }
  }
  for (; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * to_ld + r] = from[r * from_ld + c];
  }
}

// Converts Lanes(d) bytes to scaled numbers.
template <typename T>
HWY_INLINE Vec<T> scaled(const uint8_t* bytes, Vec<T> scale, Vec<T> shift) {
  const Tag<T> d;
  if constexpr (sizeof(T) == sizeof(float)) {
    const hn::Rebind<int32_t, Tag<T>> d32;
    const hn::Rebind<uint8_t, Tag<T>> d8;
    return hn::MulAdd(hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, bytes))), scale, shift);
  } else {
    HWY_ALIGN T numbers[hn::MaxLanes(Tag<T>())];
    for (size_t i = 0; i < hn::Lanes(d); ++i) numbers[i] = T(bytes[i]);
    return hn::MulAdd(hn::Load(d, numbers), scale, shift);
  }
}

// to[c * 16 + r] = rows[r][c] for 16 x 16 bytes
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void transpose_bytes(const uint8_t* const* rows, int64_t at, uint8_t* to) {
  for (int64_t r = 0; r < 16; ++r) {
    for (int64_t c = 0; c < 16; ++c) to[c * 16 + r] = rows[r][at + c];
  }
}
#else
HWY_INLINE void transpose_bytes(const uint8_t* const* rows, int64_t at, uint8_t* to) {
  const hn::FixedTag<uint8_t, 16> d;
  using V = hn::Vec<decltype(d)>;
  V a[16], b[16];
  RIDGELINE_UNROLL
  for (int r = 0; r < 16; ++r) a[r] = hn::LoadU(d, rows[r] + at);
  // Interleaving rows r and r + 8 four times turns the row number into the byte number, bit by bit.
  RIDGELINE_UNROLL
  for (int stage = 0; stage < 4; ++stage) {
    RIDGELINE_UNROLL
    for (int r = 0; r < 8; ++r) {
      b[2 * r] = hn::InterleaveLower(d, a[r], a[r + 8]);
      b[2 * r + 1] = hn::InterleaveUpper(d, a[r], a[r + 8]);
    }
    RIDGELINE_UNROLL
    for (int r = 0; r < 16; ++r) a[r] = b[r];
  }
  RIDGELINE_UNROLL
  for (int c = 0; c < 16; ++c) hn::Store(a[c], d, to + 16 * c);
}
#endif

// Fills rows [r, r + 16) x features [begin, end) of the panels. Rows past n come from `zeros`.
template <typename T>
void gather_panels(const GatherArgs<T>& g, int64_t r, int64_t begin, int64_t end) {
  static constexpr uint8_t kZeros[kGatherFeatures + 16] = {};
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const Vec<T> scale = hn::Set(d, g.scale), shift = hn::Set(d, g.shift);
  const uint8_t* rows[kGatherRows];
  for (int64_t k = 0; k < kGatherRows; ++k) {
    rows[k] = r + k < g.n ? g.set + int64_t{g.order[r + k]} * g.features + begin : kZeros;
  }
  // The rows are scattered over the set, so the next block of each is prefetched.
  if (end < g.features) {
    for (const uint8_t* row : rows) hwy::Prefetch(row + kGatherFeatures);
  }
  HWY_ALIGN uint8_t bytes[16 * kGatherRows];
  for (int64_t f = begin; f < end; f += 16) {
    const int64_t count = std::min<int64_t>(16, end - f);
    if (count == 16) {
      transpose_bytes(rows, f - begin, bytes);
    } else {
      for (int64_t k = 0; k < kGatherRows; ++k) {
        for (int64_t c = 0; c < count; ++c) bytes[c * 16 + k] = rows[k][f - begin + c];
      }
    }
    T* to = g.panels + (r / kPanel<T> * g.features + f) * kPanel<T> + r % kPanel<T>;
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t k = 0; k < kGatherRows; k += lanes) {
        hn::StoreU(scaled<T>(bytes + c * 16 + k, scale, shift), d, to + c * kPanel<T> + k);
      }
    }
  }
}

template <typename T>
void gather_rows(const GatherArgs<T>& g, int64_t first, int64_t begin, int64_t end) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const Vec<T> scale = hn::Set(d, g.scale), shift = hn::Set(d, g.shift);
  const int64_t last = std::min(first + kGatherRows, g.n);
  for (int64_t r = first; r < last; ++r) {
    const uint8_t* from = g.set + int64_t{g.order[r]} * g.features;
    T* to = g.x + r * g.ldx;
    int64_t f = begin;
    for (; f + lanes <= end; f += lanes) hn::StoreU(scaled<T>(from + f, scale, shift), d, to + f);
    for (; f < end; ++f) to[f] = T(from[f]) * g.scale + g.shift;
  }
}

// Gathers these rows and features out of a set of floats, into both layouts.
template <typename T>
void gather_floats(const GatherArgs<T>& g, int64_t first, int64_t begin, int64_t end) {
  HWY_ALIGN T block[kGatherRows * kGatherFeatures];
  const int64_t rows = std::min(kGatherRows, g.n - first);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = g.floats + int64_t{g.order[first + r]} * g.features;
    std::copy(from + begin, from + end, block + r * kGatherFeatures);
    if (g.x != nullptr) std::copy(from + begin, from + end, g.x + (first + r) * g.ldx + begin);
  }
  if (g.panels == nullptr) return;
  T* to = g.panels + (first / kPanel<T> * g.features + begin) * kPanel<T> + first % kPanel<T>;
  transpose(block, kGatherFeatures, rows, end - begin, to, kPanel<T>);
}

template <typename T>
void gather(const GatherArgs<T>& g, Range blocks) {
  const int64_t across = (g.features + kGatherFeatures - 1) / kGatherFeatures;
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const int64_t r = block / across * kGatherRows, begin = block % across * kGatherFeatures;
    const int64_t end = std::min(begin + kGatherFeatures, g.features);
    if (g.floats != nullptr) {
      gather_floats(g, r, begin, end);
      continue;
    }
    if (g.panels != nullptr) gather_panels(g, r, begin, end);
    if (g.x != nullptr) gather_rows(g, r, begin, end);
  }
}

// --- Layout ---

// Calls f(first row, rows, position in the panels) for each panel's part of `rows`.
template <typename T, class F>
HWY_INLINE void for_panels(int64_t features, Range rows, F f) {
  for (int64_t r = rows.begin; r < rows.end;) {
    const int64_t count = std::min(kPanel<T> - r % kPanel<T>, rows.end - r);
    f(r, count, r / kPanel<T> * kPanel<T> * features + r % kPanel<T>);
    r += count;
  }
}

template <typename T>
void to_panels(const T* a, int64_t lda, int64_t features, T* panels, Range rows, Range part) {
  for_panels<T>(features, rows, [&](int64_t r, int64_t count, int64_t at) HWY_ATTR {
    transpose(a + r * lda + part.begin, lda, count, part.end - part.begin,
              panels + at + part.begin * kPanel<T>, kPanel<T>);
  });
}

template <typename T>
void from_panels(const T* panels, int64_t features, T* a, int64_t lda, Range rows, Range part) {
  for_panels<T>(features, rows, [&](int64_t r, int64_t count, int64_t at) HWY_ATTR {
    transpose(panels + at + part.begin * kPanel<T>, kPanel<T>, part.end - part.begin, count,
              a + r * lda + part.begin, lda);
  });
}

// --- Loss ---

// One vector of batch rows: softmax over classes, which are kPanel apart. Returns log(sum exp).
template <typename T>
HWY_INLINE Vec<T> softmax_columns(const T* z, T* e, int64_t classes, T scale) {
  const Tag<T> d;
  Vec<T> most = hn::LoadU(d, z);
  for (int64_t c = 1; c < classes; ++c) most = hn::Max(most, hn::LoadU(d, z + c * kPanel<T>));
  Vec<T> sum = hn::Zero(d);
  for (int64_t c = 0; c < classes; ++c) {
    const Vec<T> v = exp_negative(d, hn::Sub(hn::LoadU(d, z + c * kPanel<T>), most));
    sum = hn::Add(sum, v);
    if (e != nullptr) hn::StoreU(v, d, e + c * kPanel<T>);
  }
  if (e != nullptr) {
    const Vec<T> factor = hn::Div(hn::Set(d, scale), sum);
    for (int64_t c = 0; c < classes; ++c) {
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, e + c * kPanel<T>)), d, e + c * kPanel<T>);
    }
  }
  return hn::Add(most, hn::Log(d, sum));
}

template <typename T>
void softmax_xent(const SoftmaxXentArgs<T>& g, Range groups) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  HWY_ALIGN T log_sum[kGroup<T>];
  HWY_ALIGN T at_label[kGroup<T>];
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    const int64_t first_row = group * kGroup<T>;
    const int64_t at = first_row / kPanel<T> * kPanel<T> * g.classes + first_row % kPanel<T>;
    const T* z = g.z + at;
    T* dz = g.dz != nullptr ? g.dz + at : nullptr;
    const int32_t* label = g.label + first_row;
    const int64_t live = std::min(kGroup<T>, g.n - first_row);
    int32_t correct = 0;
    for (int64_t r = 0; r < live; ++r) {  // before dz overwrites z
      const T target = z[label[r] * kPanel<T> + r];
      bool first = true;  // the largest is first reached at the label
      for (int64_t c = 0; c < g.classes; ++c) {
        const T other = z[c * kPanel<T> + r];
        first &= c < label[r] ? other < target : !(other > target);
      }
      correct += first;
      at_label[r] = target;
    }
    for (int64_t r = 0; r < live; r += lanes) {
      T* e = dz != nullptr ? dz + r : nullptr;
      hn::Store(softmax_columns(z + r, e, g.classes, T(g.scale)), d, log_sum + r);
    }
    double loss = 0;
    for (int64_t r = 0; r < live; ++r) {
      loss += double(log_sum[r]) - double(at_label[r]);
      if (dz != nullptr) dz[label[r] * kPanel<T> + r] -= T(g.scale);
    }
    g.loss[group] = loss;
    g.correct[group] = correct;
  }
}

template <typename T>
void softmax(const T* z, T* y, int64_t n, int64_t classes, Range groups) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    const int64_t row = group * kGroup<T>;
    const int64_t at = row / kPanel<T> * kPanel<T> * classes + row % kPanel<T>;
    const int64_t live = std::min(kGroup<T>, n - row);
    for (int64_t r = 0; r < live; r += lanes) {
      softmax_columns(z + at + r, y + at + r, classes, T(1));
    }
  }
}

// --- Sums made in parts ---

template <typename T>
void combine(const CombineArgs<T>& g, Range features, Range rows) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t r = rows.begin; r < rows.end; r += kPanel<T>) {
    const int64_t live = std::min(kPanel<T>, rows.end - r);
    for (int64_t f = features.begin; f < features.end; ++f) {
      const int64_t row = r * g.features + f * kPanel<T>;
      for (int64_t at = row; at < row + live; at += lanes) {
        Vec<T> sum = hn::LoadU(d, g.parts + at);
        for (int64_t p = 1; p < g.count; ++p) {
          sum = hn::Add(sum, hn::LoadU(d, g.parts + p * g.stride + at));
        }
        if (g.keep != nullptr) {
          const Vec<T> keep = hn::LoadU(d, g.keep + at);
          sum = hn::IfThenElseZero(hn::Ne(keep, hn::Zero(d)), hn::Mul(keep, sum));
        }
        hn::StoreU(activation_grad(d, g.act, hn::LoadU(d, g.saved + at), sum), d, g.dx + at);
      }
    }
  }
}

// --- Activations on flat arrays ---

template <typename T>
void activate_array(SimdActivation act, const T* x, T* y, int64_t count) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(activate(d, act, hn::LoadU(d, x + i)), d, y + i);
  if (i < count) {
    const auto live = hn::FirstN(d, size_t(count - i));
    hn::BlendedStore(activate(d, act, hn::MaskedLoad(live, d, x + i)), live, d, y + i);
  }
}

template <typename T>
void activation_grad_array(SimdActivation act, const T* saved, const T* dy, T* dx, int64_t count) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(activation_grad(d, act, hn::LoadU(d, saved + i), hn::LoadU(d, dy + i)), d, dx + i);
  }
  if (i < count) {
    const auto live = hn::FirstN(d, size_t(count - i));
    const Vec<T> v = activation_grad(d, act, hn::MaskedLoad(live, d, saved + i),
                                     hn::MaskedLoad(live, d, dy + i));
    hn::BlendedStore(v, live, d, dx + i);
  }
}

template <typename T>
inline constexpr BatchFunctions<T> kTable{
    gather<T>,  to_panels<T>, from_panels<T>,    softmax_xent<T>,
    softmax<T>, combine<T>,   activate_array<T>, activation_grad_array<T>};

}  // namespace batch

RIDGELINE_SIMD_TABLE(BatchFunctions, batch_functions, batch::kTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(BatchFunctions, batch_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
