#include "ridgeline/cpu/simd/gemv.h"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/gemv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/cell_step-inl.h"
#include "ridgeline/cpu/simd/gemv-inl.h"
#include "ridgeline/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace gemv {
namespace hn = hwy::HWY_NAMESPACE;

int64_t packed_floats(int64_t depth, int64_t out) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<float>()));
  return (out + lanes - 1) / lanes * lanes * (1 + depth);
}

// Returns the vectors of the panel that begins at this output.
int64_t vectors_at(int64_t begin, int64_t out) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<float>()));
  return std::min<int64_t>(kPanelVectors, (out - begin + lanes - 1) / lanes);
}

void pack_rows(const float* w, int64_t in, const float* more_w, int64_t more_in, int64_t out,
               const float* bias, const float* more_bias, float* packed) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<float>()));
  for (int64_t begin = 0; begin < out; begin += kPanelVectors * lanes) {
    const int64_t end = begin + vectors_at(begin, out) * lanes;
    const auto put = [&](auto value) {  // of one output
      for (int64_t o = begin; o < end; ++o) *packed++ = o < out ? value(o) : 0.0f;
    };
    put([&](int64_t o) {
      return (bias != nullptr ? bias[o] : 0.0f) + (more_bias != nullptr ? more_bias[o] : 0.0f);
    });
    for (int64_t k = 0; k < in; ++k) put([&](int64_t o) { return w[o * in + k]; });
    for (int64_t k = 0; k < more_in; ++k) put([&](int64_t o) { return more_w[o * more_in + k]; });
  }
}

template <int kVectors, int kSamples>
HWY_NOINLINE void multiply_panel(const GemvArgs& a, const float* w, int64_t begin, int64_t first) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  Vec<float> acc[kSamples][kVectors];
  RIDGELINE_UNROLL
  for (int s = 0; s < kSamples; ++s) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) acc[s][j] = hn::Load(d, w + j * lanes);
  }
  w = add_rows(w + kVectors * lanes, a.in, a.x + first * a.x_stride, a.x_stride, acc);
  if (a.more != nullptr) {
    add_rows(w, a.more_in, a.more + first * a.more_stride, a.more_stride, acc);
  }
  RIDGELINE_UNROLL
  for (int s = 0; s < kSamples; ++s) {
    float* y = a.y + (first + s) * a.y_stride + begin;
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      // In this order, NaN stays NaN on x86.
      const auto value = a.relu ? hn::Max(hn::Zero(d), acc[s][j]) : acc[s][j];
      store_part(value, y + j * lanes, a.out - begin - j * lanes);
    }
  }
}

// acc[p][j] += sum over k of x[k] * w[p][k][vector j] for two panels of kPanelVectors, in the order
// of add_rows.
HWY_INLINE void add_rows_of_two(const float* (&w)[2], int64_t depth, const float* HWY_RESTRICT x,
                                Vec<float> (&acc)[2][kPanelVectors]) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  constexpr int kSums = separate_sums(kPanelVectors);
  Vec<float> sums[kSums][2][kPanelVectors];
  RIDGELINE_UNROLL
  for (int s = 0; s < kSums; ++s) {
    RIDGELINE_UNROLL
    for (int i = 0; i < 2 * kPanelVectors; ++i) {
      Vec<float>& own = acc[i / kPanelVectors][i % kPanelVectors];
      sums[s][i / kPanelVectors][i % kPanelVectors] = s == 0 ? own : hn::Zero(d);
    }
  }
  const auto add = [&](int64_t k, Vec<float>(&to)[2][kPanelVectors]) HWY_ATTR {
    const Vec<float> value = hn::Set(d, x[k]);
    RIDGELINE_UNROLL
    for (int p = 0; p < 2; ++p) {
      RIDGELINE_UNROLL
      for (int j = 0; j < kPanelVectors; ++j) {
        to[p][j] = hn::MulAdd(value, hn::Load(d, w[p] + j * lanes), to[p][j]);
      }
      w[p] += kPanelVectors * lanes;
    }
  };
  int64_t k = 0;
  for (; k + kSums <= depth; k += kSums) {
    RIDGELINE_UNROLL
    for (int s = 0; s < kSums; ++s) add(k + s, sums[s]);
  }
  for (; k < depth; ++k) add(k, sums[0]);
  RIDGELINE_UNROLL
  for (int i = 0; i < 2 * kPanelVectors; ++i) {
    const int p = i / kPanelVectors, j = i % kPanelVectors;
    acc[p][j] = sums[0][p][j];
    RIDGELINE_UNROLL
    for (int s = 1; s < kSums; ++s) acc[p][j] = hn::Add(acc[p][j], sums[s][p][j]);
  }
}

// Computes one sample's outputs of two full panels, whose weights the processor then fetches as two
// streams: from memory, that took 14 to 30 % less time on an EPYC (Zen 5).
HWY_NOINLINE void multiply_two_panels(const GemvArgs& a, const float* w, int64_t begin) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), wide = kPanelVectors * lanes;
  const float* at[2] = {w, w + (1 + a.in + a.more_in) * wide};
  Vec<float> acc[2][kPanelVectors];
  RIDGELINE_UNROLL
  for (int p = 0; p < 2; ++p) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kPanelVectors; ++j) acc[p][j] = hn::Load(d, at[p] + j * lanes);
    at[p] += wide;
  }
  add_rows_of_two(at, a.in, a.x, acc);
  if (a.more != nullptr) add_rows_of_two(at, a.more_in, a.more, acc);
  RIDGELINE_UNROLL
  for (int p = 0; p < 2; ++p) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kPanelVectors; ++j) {
      const auto value = a.relu ? hn::Max(hn::Zero(d), acc[p][j]) : acc[p][j];
      const int64_t place = begin + p * wide + j * lanes;
      store_part(value, a.y + place, a.out - place);
    }
  }
}

template <int kVectors>
void multiply_samples(const GemvArgs& a, const float* w, int64_t begin) {
  for_sample_groups(a.samples, [&](auto group, int64_t first) HWY_ATTR {
    multiply_panel<kVectors, group.value>(a, w, begin, first);
  });
}

// Calls f with the number of vectors of a panel as a constant.
template <class F>
HWY_INLINE void with_vectors(int64_t vectors, F&& f) {
  switch (vectors) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    default:
      return f(std::integral_constant<int, 4>());
  }
}

int64_t weight_panels(int64_t out) {
  const int64_t wide = kPanelVectors * int64_t(hn::Lanes(Tag<float>()));
  return (out + wide - 1) / wide;
}

// Calls f(vectors, packed weights, first output) for each panel of the range.
template <class F>
HWY_INLINE void for_panels(const GemvArgs& a, Range panels, F&& f) {
  const int64_t wide = kPanelVectors * int64_t(hn::Lanes(Tag<float>()));
  const int64_t rows = 1 + a.in + a.more_in;
  for (int64_t i = panels.begin; i < panels.end; ++i) {
    const int64_t begin = (a.backward ? panels.begin + panels.end - 1 - i : i) * wide;
    with_vectors(vectors_at(begin, a.out),
                 [&](auto vectors) HWY_ATTR { f(vectors, a.packed + begin * rows, begin); });
  }
}

// A layer with more weights does not find them in the second-level cache.
constexpr int64_t kFarWeights = int64_t{1} << 20;

// Panels in twos; one that is left, or not full, comes last.
Range multiply_pairs(const GemvArgs& a, Range panels) {
  const int64_t wide = kPanelVectors * int64_t(hn::Lanes(Tag<float>()));
  const int64_t rows = 1 + a.in + a.more_in;
  const int64_t full = std::min(panels.end, a.out / wide);
  const int64_t pairs = std::max<int64_t>(0, full - panels.begin) / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t begin = (panels.begin + 2 * (a.backward ? pairs - 1 - i : i)) * wide;
    multiply_two_panels(a, a.packed + begin * rows, begin);
  }
  for_panels(a, {panels.begin + 2 * pairs, panels.end},
             [&](auto vectors, const float* w, int64_t begin)
                 HWY_ATTR { multiply_samples<vectors.value>(a, w, begin); });
  return {panels.begin * wide, std::min(panels.end * wide, a.out)};
}

Range multiply(const GemvArgs& a) {
  const int64_t wide = kPanelVectors * int64_t(hn::Lanes(Tag<float>()));
  const Range panels{a.panels.begin, std::min(a.panels.end, weight_panels(a.out))};
  if (kManyRegisters && a.samples == 1 && a.out * (a.in + a.more_in) > kFarWeights) {
    return multiply_pairs(a, panels);
  }
  for_panels(a, panels, [&](auto vectors, const float* w, int64_t begin) HWY_ATTR {
    multiply_samples<vectors.value>(a, w, begin);
  });
  return {panels.begin * wide, std::min(panels.end * wide, a.out)};
}

// Samples of a tile: 6 x 4 sums run at 99 % of the FMA ceiling of a Zen 4 with weights in the
// second-level cache, 8 x 2 at 94 %. 16 registers hold the sums of two samples.
constexpr int kTallRows = kManyRegisters ? 6 : 2;
// Inputs of a pass over the samples: the weights of four vectors take 256 KiB, a quarter of the
// second-level cache.
constexpr int64_t kTallDepth = 1024;

// Computes samples [first, first + kRows) of a panel, over a part of the inputs.
template <int kVectors, int kRows>
HWY_NOINLINE void multiply_tile(const GemvArgs& a, const float* w, int64_t begin, int64_t first,
                                Range depth) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), row = kVectors * lanes;
  float* const y = a.y + first * a.y_stride + begin;
  const auto left = [&](int j) { return a.out - begin - j * lanes; };
  Vec<float> acc[kRows][kVectors];
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      acc[m][j] = depth.begin == 0 ? hn::Load(d, w + j * lanes)
                                   : load_part(y + m * a.y_stride + j * lanes, left(j));
    }
  }
  accumulate<kRows, kVectors, Along::k, float>(depth.end - depth.begin,
                                               a.x + first * a.x_stride + depth.begin, a.x_stride,
                                               w + (1 + depth.begin) * row, row, acc);
  const bool relu = a.relu && depth.end == a.in;
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      const auto value = relu ? hn::Max(hn::Zero(d), acc[m][j]) : acc[m][j];
      store_part(value, y + m * a.y_stride + j * lanes, left(j));
    }
  }
}

// Calls multiply_tile<kVectors, rows>.
template <int kVectors, int kRows>
HWY_INLINE void run_tall_tile(int64_t rows, const GemvArgs& a, const float* w, int64_t begin,
                              int64_t first, Range depth) {
  if (rows == kRows) {
    multiply_tile<kVectors, kRows>(a, w, begin, first, depth);
  } else if constexpr (kRows > 1) {
    run_tall_tile<kVectors, kRows - 1>(rows, a, w, begin, first, depth);
  }
}

void multiply_many(const GemvArgs& a) {
  const int64_t tiles = (a.samples + kTallRows - 1) / kTallRows;
  for_panels(a, {0, weight_panels(a.out)},
             [&](auto vectors, const float* w, int64_t begin) HWY_ATTR {
               for (int64_t k = 0; k < a.in; k += kTallDepth) {
                 const Range depth{k, std::min(k + kTallDepth, a.in)};
                 for (int64_t tile = 0; tile < tiles; ++tile) {
                   const int64_t first = a.samples * tile / tiles;
                   const int64_t rows = a.samples * (tile + 1) / tiles - first;
                   run_tall_tile<vectors.value, kTallRows>(rows, a, w, begin, first, depth);
                 }
               }
             });
}

void activate_all(SimdActivation act, const float* x, float* y, int64_t count) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    store_part(activate(d, act, load_part(x + i, count - i)), y + i, count - i);
  }
}

void softmax_rows(const float* x, float* y, int64_t samples, int64_t classes) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t s = 0; s < samples; ++s, x += classes, y += classes) {
    float most = x[0];
    for (int64_t i = 1; i < classes; ++i) most = std::max(most, x[i]);
    const auto top = hn::Set(d, most);
    float sum = 0;
    for (int64_t i = 0; i < classes; i += lanes) {
      const auto e = exp_negative(d, hn::Sub(load_part(x + i, classes - i), top));
      store_part(e, y + i, classes - i);
    }
    for (int64_t i = 0; i < classes; ++i) sum += y[i];
    const auto whole = hn::Set(d, sum);
    for (int64_t i = 0; i < classes; i += lanes) {
      store_part(hn::Div(load_part(y + i, classes - i), whole), y + i, classes - i);
    }
  }
}

void scale_bytes(const uint8_t* x, float* y, int64_t count, float scale, float shift) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> whole;
  const hn::Rebind<uint8_t, Tag<float>> bytes;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto number = hn::ConvertTo(d, hn::PromoteTo(whole, hn::LoadU(bytes, x + i)));
    hn::StoreU(hn::MulAdd(number, hn::Set(d, scale), hn::Set(d, shift)), d, y + i);
  }
  for (; i < count; ++i) y[i] = float(x[i]) * scale + shift;
}

constexpr GemvFunctions kGemv{packed_floats, pack_rows,      weight_panels, multiply,
                              multiply_many, packed_cell,    pack_cell,     cell_panels,
                              cell_step,     cell_step_many, packed_ahead,  look_ahead,
                              activate_all,  softmax_rows,   scale_bytes};
static_assert(kCellRows - 1 <= kLeastCellSamples);

}  // namespace gemv

const GemvFunctions* gemv_table() { return &gemv::kGemv; }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

HWY_EXPORT(gemv_table);

const GemvFunctions& gemv_functions() { return *HWY_DYNAMIC_DISPATCH(gemv_table)(); }

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
