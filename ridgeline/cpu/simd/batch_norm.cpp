#include "ridgeline/cpu/simd/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/batch_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace batch_norm {

// The channels that are normalised together. A lane holds a channel if channels are single numbers
// (kFlat); otherwise all lanes hold numbers of one channel.
template <bool kFlat, typename T>
struct Channels {
  int64_t n, channels, pixels, first, count;

  // Calls f(place, mask) for each vector of their numbers in these samples.
  template <class F>
  HWY_INLINE void each(Range samples, F f) const {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d));
    if constexpr (kFlat) {
      const auto live = hn::FirstN(d, size_t(count));
      for (int64_t r = samples.begin; r < samples.end; ++r) f(r * channels + first, live);
    } else {
      for (int64_t r = samples.begin; r < samples.end; ++r) {
        const int64_t plane = (r * channels + first) * pixels;
        for (int64_t i = 0; i < pixels; i += lanes) {
          f(plane + i, hn::FirstN(d, size_t(std::min(lanes, pixels - i))));
        }
      }
    }
  }

  template <class F>
  HWY_INLINE void each(F f) const {
    each(Range{0, n}, f);
  }

  // Calls f(samples) for a few samples at a time. Their sums are added up: a single sum over a
  // hundred thousand numbers, many of them alike, loses hundreds of roundings.
  template <class F>
  HWY_INLINE void few_at_a_time(F f) const {
    constexpr int64_t kNumbers = 512;
    const int64_t few = std::max<int64_t>(1, kNumbers / pixels);
    for (int64_t r = 0; r < n; r += few) f(Range{r, std::min(r + few, n)});
  }

  // The sum of each lane's channel.
  HWY_INLINE Vec<T> total(Vec<T> sums) const {
    return kFlat ? sums : hn::Set(Tag<T>(), hn::GetLane(hn::SumOfLanes(Tag<T>(), sums)));
  }
  HWY_INLINE Vec<T> load(const T* values, T otherwise) const {
    const Tag<T> d;
    if (values == nullptr) return hn::Set(d, otherwise);
    if constexpr (!kFlat) return hn::Set(d, values[first]);
    return hn::MaskedLoad(hn::FirstN(d, size_t(count)), d, values + first);
  }
  HWY_INLINE void store(Vec<T> v, T* values) const {
    const Tag<T> d;
    if (values == nullptr) return;
    hn::BlendedStore(v, hn::FirstN(d, size_t(count)), d, values + first);
  }
};

// The moments of each lane's channel.
template <typename T>
struct Moments {
  Vec<T> mean, rstd;
  Vec<T> variance;  // divided by the count less one, for the running one
};

template <bool kFlat, typename T>
HWY_INLINE Moments<T> moments(const BatchNormArgs<T>& g, const Channels<kFlat, T>& at) {
  const Tag<T> d;
  const T number = T(g.n * g.pixels);
  const Vec<T> count = hn::Set(d, number);
  Vec<T> sums = hn::Zero(d), squares = hn::Zero(d);
  at.few_at_a_time([&](Range samples) HWY_ATTR {
    Vec<T> part = hn::Zero(d);
    at.each(samples, [&](int64_t i, auto live)
                         HWY_ATTR { part = hn::Add(part, hn::MaskedLoad(live, d, g.x + i)); });
    sums = hn::Add(sums, part);
  });
  const Vec<T> mean = hn::Div(at.total(sums), count);
  at.few_at_a_time([&](Range samples) HWY_ATTR {
    Vec<T> part = hn::Zero(d);
    at.each(samples, [&](int64_t i, auto live) HWY_ATTR {
      const Vec<T> off = hn::IfThenElseZero(live, hn::Sub(hn::MaskedLoad(live, d, g.x + i), mean));
      part = hn::MulAdd(off, off, part);
    });
    squares = hn::Add(squares, part);
  });
  squares = at.total(squares);
  const Vec<T> deviation = hn::Sqrt(hn::Add(hn::Div(squares, count), hn::Set(d, T(g.epsilon))));
  return {mean, hn::Div(hn::Set(d, T(1)), deviation), hn::Div(squares, hn::Set(d, number - T(1)))};
}

// Computes the moments, and what follows the variance, in double: in fp32 the squares of numbers
// above 1e19 overflow.
template <bool kFlat, typename T>
HWY_NOINLINE Moments<T> exact_moments(const BatchNormArgs<T>& g, const Channels<kFlat, T>& at) {
  const Tag<T> d;
  HWY_ALIGN T means[HWY_MAX_BYTES / sizeof(T)] = {}, rstds[HWY_MAX_BYTES / sizeof(T)] = {};
  const auto count = double(g.n * g.pixels);
  for (int64_t c = 0; c < at.count; ++c) {
    const T* const channel = g.x + (at.first + c) * g.pixels;
    const auto sum = [&](auto of) {
      double total = 0;
      for (int64_t r = 0; r < g.n; ++r) {
        for (int64_t p = 0; p < g.pixels; ++p) {
          total += of(double(channel[r * g.channels * g.pixels + p]));
        }
      }
      return total;
    };
    const double mean = sum([](double x) { return x; }) / count;
    const double squares = sum([&](double x) { return (x - mean) * (x - mean); });
    means[c] = T(mean);
    rstds[c] = T(1 / std::sqrt(squares / count + g.epsilon));
    if (g.running_var != nullptr) {
      T& running = g.running_var[at.first + c];
      running = T((1 - g.momentum) * double(running) + g.momentum * squares / (count - 1));
    }
  }
  if constexpr (kFlat) return {hn::Load(d, means), hn::Load(d, rstds), hn::Zero(d)};
  return {hn::Set(d, means[0]), hn::Set(d, rstds[0]), hn::Zero(d)};
}

template <bool kFlat, typename T>
HWY_INLINE void forward_channels(const BatchNormArgs<T>& g, const Channels<kFlat, T>& at) {
  const Tag<T> d;
  Moments<T> m = moments(g, at);
  const bool finite = hn::AllTrue(d, hn::IsFinite(m.variance));
  if (!finite) m = exact_moments(g, at);
  const Vec<T> mean = m.mean, rstd = m.rstd, momentum = hn::Set(d, T(g.momentum));
  const Vec<T> gamma = at.load(g.gamma, T(1)), beta = at.load(g.beta, T(0));
  at.each([&](int64_t i, auto live) HWY_ATTR {
    const Vec<T> unit = hn::Mul(hn::Sub(hn::MaskedLoad(live, d, g.x + i), mean), rstd);
    hn::BlendedStore(hn::MulAdd(unit, gamma, beta), live, d, g.y + i);
  });
  at.store(mean, g.mean);
  at.store(rstd, g.rstd);
  const auto follow = [&](T* running, Vec<T> now) HWY_ATTR {
    const Vec<T> before = at.load(running, T(0));
    at.store(hn::MulAdd(momentum, hn::Sub(now, before), before), running);
  };
  follow(g.running_mean, mean);
  if (finite) follow(g.running_var, m.variance);
}

template <bool kFlat, typename T>
HWY_INLINE void grad_channels(const BatchNormGradArgs<T>& g, const Channels<kFlat, T>& at) {
  const Tag<T> d;
  const Vec<T> count = hn::Set(d, T(g.n * g.pixels));
  const Vec<T> mean = at.load(g.mean, T(0)), rstd = at.load(g.rstd, T(1));
  const auto unit = [&](int64_t i, auto live) HWY_ATTR {
    return hn::Mul(hn::Sub(hn::MaskedLoad(live, d, g.x + i), mean), rstd);
  };
  Vec<T> sums = hn::Zero(d), alongs = hn::Zero(d);
  at.few_at_a_time([&](Range samples) HWY_ATTR {
    Vec<T> part = hn::Zero(d), along = hn::Zero(d);
    at.each(samples, [&](int64_t i, auto live) HWY_ATTR {
      const Vec<T> dy = hn::MaskedLoad(live, d, g.dy + i);
      part = hn::Add(part, dy);
      along = hn::Add(along, hn::IfThenElseZero(live, hn::Mul(dy, unit(i, live))));
    });
    sums = hn::Add(sums, part);
    alongs = hn::Add(alongs, along);
  });
  sums = at.total(sums);
  alongs = at.total(alongs);
  at.store(sums, g.dbeta);
  at.store(alongs, g.dgamma);
  if (g.dx == nullptr) return;
  const Vec<T> level = hn::Div(sums, count), tilt = hn::Div(alongs, count);
  const Vec<T> scale = hn::Mul(at.load(g.gamma, T(1)), rstd);
  at.each([&](int64_t i, auto live) HWY_ATTR {
    const Vec<T> rest = hn::Sub(hn::MaskedLoad(live, d, g.dy + i), level);
    const Vec<T> dx = hn::Mul(scale, hn::NegMulAdd(unit(i, live), tilt, rest));
    hn::BlendedStore(dx, live, d, g.dx + i);
  });
}

// Calls f(Channels) for parts of `range`.
template <typename T, class Args, class F>
HWY_INLINE void for_channels(const Args& g, Range range, F f) {
  if (g.pixels == 1) {
    const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
    for (int64_t c = range.begin; c < range.end; c += lanes) {
      f(Channels<true, T>{g.n, g.channels, 1, c, std::min(lanes, range.end - c)});
    }
  } else {
    for (int64_t c = range.begin; c < range.end; ++c) {
      f(Channels<false, T>{g.n, g.channels, g.pixels, c, 1});
    }
  }
}

template <typename T>
void forward(const BatchNormArgs<T>& g, Range channels) {
  for_channels<T>(g, channels, [&](const auto& at) HWY_ATTR { forward_channels(g, at); });
}

template <typename T>
void grad(const BatchNormGradArgs<T>& g, Range channels) {
  for_channels<T>(g, channels, [&](const auto& at) HWY_ATTR { grad_channels(g, at); });
}

template <typename T>
inline constexpr BatchNormFunctions<T> kBatchNormTable{forward<T>, grad<T>};

}  // namespace batch_norm

RIDGELINE_SIMD_TABLE(BatchNormFunctions, batch_norm_functions, batch_norm::kBatchNormTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(BatchNormFunctions, batch_norm_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
