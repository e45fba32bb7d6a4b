#include "ridgeline/cpu/simd/panel_norm.h"

#include <algorithm>
#include <cmath>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/panel_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace panel_norm {

// The place of (sample, feature) in panels of that many features.
template <typename T>
HWY_INLINE int64_t place(int64_t features, int64_t sample, int64_t feature) {
  return (sample / kPanel<T> * features + feature) * kPanel<T> + sample % kPanel<T>;
}

// The sum of term(i) for i in [begin, end) by `step`. Terms are added up in blocks: one long chain
// of additions would lose more digits.
template <typename T, class F>
HWY_INLINE Vec<T> sum(Range range, int64_t step, F term) {
  constexpr int64_t kBlock = 64;
  const Tag<T> d;
  Vec<T> total = hn::Zero(d);
  for (int64_t i = range.begin; i < range.end;) {
    const int64_t end = std::min(range.end, i + kBlock * step);
    Vec<T> block = hn::Zero(d);
    for (; i < end; i += step) block = hn::Add(block, term(i));
    total = hn::Add(total, block);
  }
  return total;
}

template <typename T>
HWY_INLINE Vec<T> broadcast(const T* values, int64_t at, T otherwise) {
  return hn::Set(Tag<T>(), values != nullptr ? values[at] : otherwise);
}

// --- Over samples: a lane holds a sample ---

template <typename T>
void moments(const PanelNormArgs<T>& g, Range features, const PanelMoments& m) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), count = features.end - features.begin;
  HWY_ALIGN T means[HWY_MAX_BYTES / sizeof(T)], squares[HWY_MAX_BYTES / sizeof(T)];
  for (int64_t r = 0; r < g.n; r += lanes) {
    const T* const x = g.x + place<T>(g.features, r, 0);
    Vec<T> mean = hn::Zero(d);
    if (m.centred && count > 0) {
      const Vec<T> all =
          sum<T>(features, 1, [&](int64_t f) HWY_ATTR { return hn::LoadU(d, x + f * kPanel<T>); });
      mean = hn::Div(all, hn::Set(d, T(count)));
    }
    hn::Store(mean, d, means);
    const auto square = [&](int64_t f) HWY_ATTR {
      const Vec<T> off = hn::Sub(hn::LoadU(d, x + f * kPanel<T>), mean);
      return hn::Mul(off, off);
    };
    hn::Store(sum<T>(features, 1, square), d, squares);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      double middle = double(means[lane]), total = double(squares[lane]);
      if (!std::isfinite(total) && r + lane < g.n) {  // in fp32, squares end at 1e19
        const auto each = [&](auto of) {
          double all = 0;
          for (int64_t f = features.begin; f < features.end; ++f) {
            all += of(double(x[f * kPanel<T> + lane]));
          }
          return all;
        };
        middle = m.centred ? each([](double v) { return v; }) / double(count) : 0;
        total = each([&](double v) { return (v - middle) * (v - middle); });
      }
      m.mean[r + lane] = middle;
      m.squares[r + lane] = total;
    }
  }
}

template <typename T>
void forward(const PanelNormArgs<T>& g, Range features) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t r = 0; r < g.n; r += lanes) {
    const Vec<T> mean = hn::LoadU(d, g.mean + r), rstd = hn::LoadU(d, g.rstd + r);
    const int64_t row = place<T>(g.features, r, 0);
    for (int64_t f = features.begin; f < features.end; ++f) {
      const int64_t at = row + f * kPanel<T>;
      const Vec<T> unit = hn::Mul(hn::Sub(hn::LoadU(d, g.x + at), mean), rstd);
      const Vec<T> y =
          hn::MulAdd(unit, broadcast<T>(g.gamma, f, T(1)), broadcast<T>(g.beta, f, T(0)));
      hn::StoreU(y, d, g.y + at);
    }
  }
}

// Writes or adds to the gradients of gamma and beta of a feature, given by sums over the batch.
template <typename T>
HWY_INLINE void use_sums(const PanelNormGradArgs<T>& g, int64_t f, T along, T total) {
  if (g.dgamma != nullptr) g.dgamma[f] = g.add ? g.dgamma[f] + along : along;
  if (g.dbeta != nullptr) g.dbeta[f] = g.add ? g.dbeta[f] + total : total;
}

template <typename T>
HWY_INLINE T lanes_total(Vec<T> v) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>(), v));
}

// The sum over the samples of term(sample, place), a vector at a time.
template <typename T, class F>
HWY_INLINE Vec<T> sum_samples(int64_t n, int64_t features, int64_t feature, F term) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  return sum<T>({0, n}, lanes, [&](int64_t r) HWY_ATTR {
    const auto live = hn::FirstN(d, size_t(std::min(lanes, n - r)));
    return hn::IfThenElseZero(live, term(r, place<T>(features, r, feature)));
  });
}

template <typename T>
void slopes(const PanelNormGradArgs<T>& g, Range features, const PanelSlopes<T>& sums) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto unit = [&](int64_t r, int64_t at) HWY_ATTR {
    return hn::Mul(hn::Sub(hn::LoadU(d, g.x + at), hn::LoadU(d, g.mean + r)),
                   hn::LoadU(d, g.rstd + r));
  };
  for (int64_t r = 0; r < g.n; r += lanes) {
    const int64_t row = place<T>(g.features, r, 0);
    const auto slope = [&](int64_t f) HWY_ATTR {
      return hn::Mul(hn::LoadU(d, g.dy + row + f * kPanel<T>), broadcast<T>(g.gamma, f, T(1)));
    };
    hn::StoreU(sum<T>(features, 1, slope), d, sums.level + r);
    const auto along = [&](int64_t f)
                           HWY_ATTR { return hn::Mul(slope(f), unit(r, row + f * kPanel<T>)); };
    hn::StoreU(sum<T>(features, 1, along), d, sums.tilt + r);
  }
  if (g.dgamma == nullptr && g.dbeta == nullptr) return;
  for (int64_t f = features.begin; f < features.end; ++f) {
    const auto dy = [&](int64_t, int64_t at) HWY_ATTR { return hn::LoadU(d, g.dy + at); };
    const auto along = [&](int64_t r, int64_t at)
                           HWY_ATTR { return hn::Mul(hn::LoadU(d, g.dy + at), unit(r, at)); };
    use_sums(g, f, lanes_total<T>(sum_samples<T>(g.n, g.features, f, along)),
             lanes_total<T>(sum_samples<T>(g.n, g.features, f, dy)));
  }
}

template <typename T>
void grad(const PanelNormGradArgs<T>& g, Range features, const PanelSlopes<T>& means) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t r = 0; r < g.n; r += lanes) {
    const Vec<T> mean = hn::LoadU(d, g.mean + r), rstd = hn::LoadU(d, g.rstd + r);
    const Vec<T> level = hn::LoadU(d, means.level + r), tilt = hn::LoadU(d, means.tilt + r);
    const int64_t row = place<T>(g.features, r, 0);
    for (int64_t f = features.begin; f < features.end; ++f) {
      const int64_t at = row + f * kPanel<T>;
      const Vec<T> unit = hn::Mul(hn::Sub(hn::LoadU(d, g.x + at), mean), rstd);
      const Vec<T> slope = hn::Mul(hn::LoadU(d, g.dy + at), broadcast<T>(g.gamma, f, T(1)));
      hn::StoreU(hn::Mul(rstd, hn::NegMulAdd(unit, tilt, hn::Sub(slope, level))), d, g.dy + at);
    }
  }
}

// --- Over the batch: all lanes hold numbers of one feature ---

// Calls f(place) for each vector of a feature's numbers.
template <typename T, class F>
HWY_INLINE void each_sample(int64_t n, int64_t features, int64_t feature, F f) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  for (int64_t r = 0; r < n; r += lanes) f(place<T>(features, r, feature));
}

// Computes the moments of a feature in double, where squares of large numbers do not overflow.
template <typename T>
HWY_NOINLINE void exact_moments(const PanelNormArgs<T>& g, int64_t f) {
  const auto each = [&](auto of) {
    double all = 0;
    for (int64_t r = 0; r < g.n; ++r) all += of(double(g.x[place<T>(g.features, r, f)]));
    return all;
  };
  const auto count = double(g.n);
  const double mean = each([](double v) { return v; }) / count;
  const double squares = each([&](double v) { return (v - mean) * (v - mean); });
  g.mean[f] = T(mean);
  g.rstd[f] = T(1 / std::sqrt(squares / count + g.epsilon));
  T& running = g.running_var[f];
  running = T((1 - g.momentum) * double(running) + g.momentum * squares / (count - 1));
}

template <typename T>
void batch(const PanelNormArgs<T>& g, Range features) {
  const Tag<T> d;
  const T momentum = T(g.momentum);
  for (int64_t f = features.begin; f < features.end; ++f) {
    const auto x = [&](int64_t, int64_t at) HWY_ATTR { return hn::LoadU(d, g.x + at); };
    const T all = lanes_total<T>(sum_samples<T>(g.n, g.features, f, x));
    const Vec<T> middle = hn::Set(d, g.mean[f] = all / T(g.n));
    const auto square = [&](int64_t, int64_t at) HWY_ATTR {
      const Vec<T> off = hn::Sub(hn::LoadU(d, g.x + at), middle);
      return hn::Mul(off, off);
    };
    const T squares = lanes_total<T>(sum_samples<T>(g.n, g.features, f, square));
    if (std::isfinite(squares)) {
      g.rstd[f] = T(1) / std::sqrt(squares / T(g.n) + T(g.epsilon));
      g.running_var[f] += momentum * (squares / T(g.n - 1) - g.running_var[f]);
    } else {
      exact_moments(g, f);
    }
    g.running_mean[f] += momentum * (g.mean[f] - g.running_mean[f]);
    const Vec<T> mean = hn::Set(d, g.mean[f]), rstd = hn::Set(d, g.rstd[f]);
    const Vec<T> gamma = broadcast<T>(g.gamma, f, T(1)), beta = broadcast<T>(g.beta, f, T(0));
    each_sample<T>(g.n, g.features, f, [&](int64_t at) HWY_ATTR {
      const Vec<T> unit = hn::Mul(hn::Sub(hn::LoadU(d, g.x + at), mean), rstd);
      hn::StoreU(hn::MulAdd(unit, gamma, beta), d, g.y + at);
    });
  }
}

template <typename T>
void batch_grad(const PanelNormGradArgs<T>& g, Range features) {
  const Tag<T> d;
  for (int64_t f = features.begin; f < features.end; ++f) {
    const Vec<T> mean = hn::Set(d, g.mean[f]), rstd = hn::Set(d, g.rstd[f]);
    const auto dy = [&](int64_t, int64_t at) HWY_ATTR { return hn::LoadU(d, g.dy + at); };
    const auto unit = [&](int64_t at)
                          HWY_ATTR { return hn::Mul(hn::Sub(hn::LoadU(d, g.x + at), mean), rstd); };
    const auto product = [&](int64_t, int64_t at)
                             HWY_ATTR { return hn::Mul(hn::LoadU(d, g.dy + at), unit(at)); };
    const T total = lanes_total<T>(sum_samples<T>(g.n, g.features, f, dy));
    const T along = lanes_total<T>(sum_samples<T>(g.n, g.features, f, product));
    use_sums(g, f, along, total);
    const Vec<T> level = hn::Set(d, total / T(g.n)), tilt = hn::Set(d, along / T(g.n));
    const Vec<T> scale = hn::Mul(broadcast<T>(g.gamma, f, T(1)), rstd);
    each_sample<T>(g.n, g.features, f, [&](int64_t at) HWY_ATTR {
      const Vec<T> rest = hn::Sub(hn::LoadU(d, g.dy + at), level);
      hn::StoreU(hn::Mul(scale, hn::NegMulAdd(unit(at), tilt, rest)), d, g.dy + at);
    });
  }
}

template <typename T>
inline constexpr PanelNormFunctions<T> kTable{moments<T>, forward<T>, slopes<T>,
                                              grad<T>,    batch<T>,   batch_grad<T>};

}  // namespace panel_norm

RIDGELINE_SIMD_TABLE(PanelNormFunctions, panel_norm_functions, panel_norm::kTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(PanelNormFunctions, panel_norm_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
