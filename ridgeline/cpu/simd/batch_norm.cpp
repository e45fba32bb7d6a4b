#include "ridgeline/cpu/simd/batch_norm.h"

#include <algorithm>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/batch_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace batch_norm {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vec = hn::Vec<Tag<T>>;

// The channels that are normalised together. A lane holds a channel if channels are single numbers
// (kFlat); otherwise all lanes hold numbers of one channel.
template <bool kFlat, typename T>
struct Channels {
  int64_t n, channels, pixels, first, count;

  // Calls f(place, mask) for each vector of their numbers.
  template <class F>
  HWY_INLINE void each(F f) const {
    const Tag<T> d;
    const int64_t lanes = int64_t(hn::Lanes(d));
    if constexpr (kFlat) {
      const auto live = hn::FirstN(d, size_t(count));
      for (int64_t r = 0; r < n; ++r) f(r * channels + first, live);
    } else {
      for (int64_t r = 0; r < n; ++r) {
        const int64_t plane = (r * channels + first) * pixels;
        for (int64_t i = 0; i < pixels; i += lanes) {
          f(plane + i, hn::FirstN(d, size_t(std::min(lanes, pixels - i))));
        }
      }
    }
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

template <bool kFlat, typename T>
HWY_INLINE void forward_channels(const BatchNormArgs<T>& g, const Channels<kFlat, T>& at) {
  const Tag<T> d;
  const T number = T(g.n * g.pixels);
  const Vec<T> count = hn::Set(d, number), momentum = hn::Set(d, T(g.momentum));
  Vec<T> sums = hn::Zero(d), squares = hn::Zero(d);
  at.each([&](int64_t i, auto live)
              HWY_ATTR { sums = hn::Add(sums, hn::MaskedLoad(live, d, g.x + i)); });
  const Vec<T> mean = hn::Div(at.total(sums), count);
  at.each([&](int64_t i, auto live) HWY_ATTR {
    const Vec<T> off = hn::IfThenElseZero(live, hn::Sub(hn::MaskedLoad(live, d, g.x + i), mean));
    squares = hn::MulAdd(off, off, squares);
  });
  squares = at.total(squares);
  const Vec<T> deviation = hn::Sqrt(hn::Add(hn::Div(squares, count), hn::Set(d, T(g.epsilon))));
  const Vec<T> rstd = hn::Div(hn::Set(d, T(1)), deviation);
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
  follow(g.running_var, hn::Div(squares, hn::Set(d, number - T(1))));
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
  at.each([&](int64_t i, auto live) HWY_ATTR {
    const Vec<T> dy = hn::MaskedLoad(live, d, g.dy + i);
    sums = hn::Add(sums, dy);
    alongs = hn::Add(alongs, hn::IfThenElseZero(live, hn::Mul(dy, unit(i, live))));
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
