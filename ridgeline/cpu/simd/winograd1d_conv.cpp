#include "ridgeline/cpu/simd/winograd1d_conv.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/winograd1d_conv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace winograd1d_conv {
namespace hn = hwy::HWY_NAMESPACE;

using V = Vec<float>;

// Rows of a register tile of two vectors: 12 x 2 sums in 32 registers, 6 x 2 in 16.
constexpr int64_t kRowTile = kManyRegisters ? 12 : 6;

HWY_INLINE V times(float factor, V value) { return hn::Mul(hn::Set(Tag<float>(), factor), value); }
// sum + factor * value
HWY_INLINE V plus(V sum, float factor, V value) {
  return hn::MulAdd(hn::Set(Tag<float>(), factor), value, sum);
}
HWY_INLINE V nan_max(V a, V b) {  // NaN if either is
  return hn::IfThenElse(hn::Eq(a, a), hn::Max(a, b), a);
}

// u of one point and its opposite: 1 / D(p) times the even and odd powers.
template <int kTaps>
HWY_INLINE void point_pair(const V (&w)[kTaps], float p, float scale, V& positive, V& negative) {
  V even = times(scale, w[0]), odd = times(scale * p, w[1]);
  float power = scale * p;
  RIDGELINE_UNROLL
  for (int k = 2; k < kTaps; ++k) {
    power *= p;
    if (k % 2 == 0) {
      even = plus(even, power, w[k]);
    } else {
      odd = plus(odd, power, w[k]);
    }
  }
  positive = hn::Add(even, odd);
  negative = hn::Sub(even, odd);
}

template <int kTaps>
void weight_panels(const Winograd1dArgs& g, Range panels) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  const Winograd1dShape& s = g.shape;
  const int64_t lanes = int64_t(hn::Lanes(d));
  // The stride between output channels.
  const auto stride = hn::Mul(hn::Iota(di, 0), hn::Set(di, int32_t(s.in * kTaps)));
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    float* u = g.u + panel * kWinograd1dPoints * s.in * kWinograd1dPanel;
    for (int64_t o = 0; o < kWinograd1dPanel; o += lanes) {
      for (int64_t c = 0; c < s.in; ++c) {
        const float* from = g.w + ((panel * kWinograd1dPanel + o) * s.in + c) * kTaps;
        V w[kTaps], point[kWinograd1dPoints];
        RIDGELINE_UNROLL
        for (int k = 0; k < kTaps; ++k) w[k] = hn::GatherIndex(d, from + k, stride);
        point[0] = hn::Neg(w[0]);                               // D(0) = -1
        point_pair(w, 1.0f, -1 / 4.5f, point[1], point[2]);     // D(+-1) = -4.5
        point_pair(w, 2.0f, 1 / 90.0f, point[3], point[4]);     // D(+-2) = 90
        point_pair(w, 0.5f, 1 / 1.40625f, point[5], point[6]);  // D(+-1/2) = 1.40625
        point[7] = w[kTaps - 1];
        RIDGELINE_UNROLL
        for (int p = 0; p < kWinograd1dPoints; ++p) {
          hn::StoreU(point[p], d, u + (p * s.in + c) * kWinograd1dPanel + o);
        }
      }
    }
  }
}

// Computes v of one tile whose inputs begin at x; those past `count` (the last tile of a sample)
// are zero. v[p] is `stride` after v[p - 1].
HWY_INLINE void transform_tile(const float* x, int64_t in, int64_t count, float* v,
                               int64_t stride) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t c = 0; c < in; c += lanes) {
    V a[kWinograd1dPoints];
    RIDGELINE_UNROLL
    for (int j = 0; j < kWinograd1dPoints; ++j) {
      a[j] = j < count ? hn::LoadU(d, x + j * in + c) : hn::Zero(d);
    }
    const auto put = [&](int p, V value) { hn::StoreU(value, d, v + p * stride + c); };
    const auto put_pair = [&](int p, V even, V odd) {
      put(p, hn::Add(even, odd));
      put(p + 1, hn::Sub(even, odd));
    };
    // The coefficients of x (x^2 - 1) (x^2 - 4) (x^2 - 1/4) without the factor of the point.
    put(0, plus(hn::Sub(a[6], a[0]), 5.25f, hn::Sub(a[2], a[4])));
    put_pair(1, plus(hn::Add(a[6], a[2]), -4.25f, a[4]), plus(hn::Add(a[5], a[1]), -4.25f, a[3]));
    put_pair(3, plus(plus(a[6], -1.25f, a[4]), 0.25f, a[2]),
             plus(plus(hn::Add(a[5], a[5]), -2.5f, a[3]), 0.5f, a[1]));
    put_pair(5, plus(plus(a[6], -5.0f, a[4]), 4.0f, a[2]),
             plus(plus(times(0.5f, a[5]), -2.5f, a[3]), 2.0f, a[1]));
    put(7, plus(hn::Sub(a[7], a[1]), 5.25f, hn::Sub(a[3], a[5])));
  }
}

// rows [kRows, kWinograd1dPanel] = v [kRows, in] . u [in, kWinograd1dPanel]
template <int kRows>
HWY_NOINLINE void multiply_rows(const float* v, const float* u, int64_t in, float* products) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t o = 0; o < kWinograd1dPanel; o += 2 * lanes) {
    V acc[kRows][2];
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) acc[m][0] = acc[m][1] = hn::Zero(d);
    accumulate<kRows, 2, Along::k, float>(in, v, in, u + o, kWinograd1dPanel, acc);
    RIDGELINE_UNROLL
    for (int m = 0; m < kRows; ++m) {
      RIDGELINE_UNROLL
      for (int j = 0; j < 2; ++j) {
        hn::StoreU(acc[m][j], d, products + m * kWinograd1dPanel + o + j * lanes);
      }
    }
  }
}

template <int kRows>
void multiply(int64_t rows, const float* v, const float* u, int64_t in, float* products) {
  if (rows >= kRows) return multiply_rows<kRows>(v, u, in, products);
  if constexpr (kRows > 1) multiply<kRows - 1>(rows, v, u, in, products);
}

// Transforms `tiles` tiles of m outputs each, with bias and relu, to rows of a panel.
template <int kTaps>
void outputs_of(const float* products, int64_t tiles, const float* bias, bool relu, float* rows) {
  constexpr int kOutputs = int(kWinograd1dPoints) + 1 - kTaps;
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), point = kWinograd1dTiles * kWinograd1dPanel;
  for (int64_t c = 0; c < kWinograd1dPanel; c += lanes) {
    const V start = bias != nullptr ? hn::LoadU(d, bias + c) : hn::Zero(d);
    for (int64_t t = 0; t < tiles; ++t) {
      const float* from = products + t * kWinograd1dPanel + c;
      V a[kWinograd1dPoints];
      RIDGELINE_UNROLL
      for (int p = 0; p < kWinograd1dPoints; ++p) a[p] = hn::LoadU(d, from + p * point);
      V even[3], odd[3];
      RIDGELINE_UNROLL
      for (int pair = 0; pair < 3; ++pair) {
        even[pair] = hn::Add(a[1 + 2 * pair], a[2 + 2 * pair]);
        odd[pair] = hn::Sub(a[1 + 2 * pair], a[2 + 2 * pair]);
      }
      float two = 1;
      RIDGELINE_UNROLL
      for (int j = 0; j < kOutputs; ++j, two *= 2) {
        const auto& part = j % 2 == 0 ? even : odd;
        V y = plus(plus(part[0], two, part[1]), 1 / two, part[2]);
        if (j == 0) y = hn::Add(y, a[0]);
        if (j == kOutputs - 1) y = hn::Add(y, a[7]);
        y = hn::Add(y, start);
        if (relu) y = hn::Max(hn::Zero(d), y);
        hn::StoreU(y, d, rows + (t * kOutputs + j) * kWinograd1dPanel + c);
      }
    }
  }
}

// Stores rows of a panel in y, whose rows are `out` apart.
void store_rows(const float* rows, int64_t count, bool pool, float* y, int64_t out) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const int64_t many = pool ? count / 3 : count;
  for (int64_t t = 0; t < many; ++t) {
    for (int64_t c = 0; c < kWinograd1dPanel; c += lanes) {
      const float* from = rows + (pool ? 3 * t : t) * kWinograd1dPanel + c;
      V value = hn::LoadU(d, from);
      if (pool) {
        value = nan_max(nan_max(value, hn::LoadU(d, from + kWinograd1dPanel)),
                        hn::LoadU(d, from + 2 * kWinograd1dPanel));
      }
      hn::StoreU(value, d, y + t * out + c);
    }
  }
}

// Iterates over the tiles of one sample within a chunk: tiles [begin, end) of the chunk are tiles
// `first` on of `sample`.
template <typename F>
HWY_INLINE void for_samples(const Winograd1dShape& s, int64_t chunk, F f) {
  if (s.pool) {
    const int64_t sample = chunk / s.sample_chunks(),
                  first = chunk % s.sample_chunks() * kWinograd1dTiles;
    f(sample, first, 0, std::min(kWinograd1dTiles, s.tiles() - first));
    return;
  }
  const int64_t last = std::min((chunk + 1) * kWinograd1dTiles, s.n * s.tiles());
  for (int64_t at = chunk * kWinograd1dTiles; at < last;) {
    const int64_t sample = at / s.tiles(), first = at % s.tiles();
    const int64_t count = std::min(s.tiles() - first, last - at);
    f(sample, first, at - chunk * kWinograd1dTiles, count);
    at += count;
  }
}

template <int kTaps>
void convolve_chunk(const Winograd1dArgs& g, float* scratch, int64_t chunk) {
  const Winograd1dShape& s = g.shape;
  constexpr int64_t kOutputs = kWinograd1dPoints + 1 - kTaps;
  float* v = scratch;
  float* products = v + kWinograd1dPoints * kWinograd1dTiles * s.in;
  float* rows = products + kWinograd1dPoints * kWinograd1dTiles * kWinograd1dPanel;
  int64_t tiles = 0;
  for_samples(s, chunk, [&](int64_t sample, int64_t first, int64_t begin, int64_t count) {
    for (int64_t t = 0; t < count; ++t) {
      const int64_t at = (first + t) * kOutputs;
      transform_tile(g.x + (sample * s.length + at) * s.in, s.in, s.length - at,
                     v + (begin + t) * s.in, kWinograd1dTiles * s.in);
    }
    tiles += count;
  });
  for (int64_t panel = g.panels.begin; panel < g.panels.end; ++panel) {
    const int64_t o = panel * kWinograd1dPanel;
    for (int64_t p = 0; p < kWinograd1dPoints; ++p) {
      const float* u = g.u + (panel * kWinograd1dPoints + p) * s.in * kWinograd1dPanel;
      for (int64_t t = 0; t < tiles; t += kRowTile) {
        multiply<int(kRowTile)>(tiles - t, v + (p * kWinograd1dTiles + t) * s.in, u, s.in,
                                products + (p * kWinograd1dTiles + t) * kWinograd1dPanel);
      }
    }
    outputs_of<kTaps>(products, tiles, g.bias != nullptr ? g.bias + o : nullptr, s.relu, rows);
    for_samples(s, chunk, [&](int64_t sample, int64_t first, int64_t begin, int64_t count) {
      const int64_t at = first * kOutputs;
      const int64_t to = sample * s.results() + (s.pool ? at / 3 : at);
      store_rows(rows + begin * kOutputs * kWinograd1dPanel,
                 std::min(count * kOutputs, s.steps() - at), s.pool, g.y + to * s.out + o, s.out);
    });
  }
}

template <int kTaps>
void convolve_taps(const Winograd1dArgs& g, float* scratch, Range chunks) {
  for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    convolve_chunk<kTaps>(g, scratch, chunk);
  }
}

// Calls f.operator()<taps>().
template <typename F>
void with_taps(int64_t taps, F f) {
  switch (taps) {
    case 3:
      return f.template operator()<3>();
    case 4:
      return f.template operator()<4>();
    case 5:
      return f.template operator()<5>();
    case 6:
      return f.template operator()<6>();
    default:
      return f.template operator()<7>();
  }
}

void weights(const Winograd1dArgs& g, Range panels) {
  with_taps(g.shape.kernel, [&]<int kTaps>() { weight_panels<kTaps>(g, panels); });
}
void convolve(const Winograd1dArgs& g, float* scratch, Range chunks) {
  with_taps(g.shape.kernel, [&]<int kTaps>() { convolve_taps<kTaps>(g, scratch, chunks); });
}

constexpr Winograd1dFunctions kWinograd1d{weights, convolve};

}  // namespace winograd1d_conv

const Winograd1dFunctions* winograd1d() { return &winograd1d_conv::kWinograd1d; }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

HWY_EXPORT(winograd1d);
const Winograd1dFunctions& winograd1d_functions() { return *HWY_DYNAMIC_DISPATCH(winograd1d)(); }

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
