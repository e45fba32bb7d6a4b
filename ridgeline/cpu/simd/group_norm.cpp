#include "ridgeline/cpu/simd/group_norm.h"

#include <algorithm>
#include <cmath>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/group_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace group_norm {

// Calls f(index, mask) for each vector of `count` numbers.
template <typename T, class F>
HWY_INLINE void for_vectors(int64_t count, F f) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    f(i, hn::FirstN(d, size_t(std::min(lanes, count - i))));
  }
}

template <typename T>
HWY_INLINE T total(Vec<T> sums) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>(), sums));
}

// The weight of each number of a run: gamma or beta of its channel, or `otherwise` without.
template <typename T>
class ChannelWeights {
 public:
  ChannelWeights(const T* values, int64_t first, int64_t spatial, T otherwise)
      : values_(values != nullptr ? values + first : nullptr),
        spatial_(spatial),
        otherwise_(otherwise) {}

  // Returns the weights of the numbers from `place` on; all `spatial` numbers belong to one
  // channel.
  template <class M>
  HWY_INLINE Vec<T> at(int64_t place, M live) const {
    const Tag<T> d;
    if (values_ == nullptr) return hn::Set(d, otherwise_);
    if (spatial_ == 1) return hn::MaskedLoad(live, d, values_ + place);
    return hn::Set(d, values_[place / spatial_]);
  }

 private:
  const T* values_;
  int64_t spatial_;
  T otherwise_;
};

// Calls f(index, mask) for each vector of a run; no vector crosses the end of a channel of several
// numbers.
template <typename T, class F>
HWY_INLINE void for_run(int64_t width, int64_t spatial, F f) {
  const int64_t piece = spatial == 1 ? width : spatial;
  for (int64_t begin = 0; begin < width; begin += piece) {
    for_vectors<T>(piece, [&](int64_t i, auto live) HWY_ATTR { f(begin + i, live); });
  }
}

template <typename T>
struct Moments {
  T mean, rstd;
};

template <typename T>
HWY_INLINE Moments<T> moments(const GroupNormArgs<T>& g, const T* x) {
  const Tag<T> d;
  T mean = 0;
  if (g.centred) {
    Vec<T> sums = hn::Zero(d);
    for_vectors<T>(g.width, [&](int64_t i, auto live)
                                HWY_ATTR { sums = hn::Add(sums, hn::MaskedLoad(live, d, x + i)); });
    mean = total<T>(sums) / T(g.width);
  }
  const Vec<T> centre = hn::Set(d, mean);
  Vec<T> squares = hn::Zero(d);
  for_vectors<T>(g.width, [&](int64_t i, auto live) HWY_ATTR {
    const Vec<T> off = hn::IfThenElseZero(live, hn::Sub(hn::MaskedLoad(live, d, x + i), centre));
    squares = hn::MulAdd(off, off, squares);
  });
  return {mean, T(1) / std::sqrt(total<T>(squares) / T(g.width) + T(g.epsilon))};
}

// Computes the moments in double: in fp32 the squares of numbers above 1e19 overflow.
template <typename T>
HWY_NOINLINE Moments<T> exact_moments(const GroupNormArgs<T>& g, const T* x) {
  const auto sum = [&](auto of) {
    double all = 0;
    for (int64_t i = 0; i < g.width; ++i) all += of(double(x[i]));
    return all;
  };
  const double mean = g.centred ? sum([](double v) { return v; }) / double(g.width) : 0;
  const double squares = sum([&](double v) { return (v - mean) * (v - mean); });
  return {T(mean), T(1 / std::sqrt(squares / double(g.width) + g.epsilon))};
}

template <typename T>
void forward(const GroupNormArgs<T>& g, Range runs) {
  const Tag<T> d;
  for (int64_t r = runs.begin; r < runs.end; ++r) {
    const T* x = g.x + r * g.width;
    T* y = g.y + r * g.width;
    Moments<T> m = moments(g, x);
    if (!(m.rstd > 0)) m = exact_moments(g, x);
    const Vec<T> centre = hn::Set(d, m.mean), scale = hn::Set(d, m.rstd);
    const ChannelWeights<T> gamma(g.gamma, g.first_channel(r), g.spatial, T(1));
    const ChannelWeights<T> beta(g.beta, g.first_channel(r), g.spatial, T(0));
    for_run<T>(g.width, g.spatial, [&](int64_t i, auto live) HWY_ATTR {
      const Vec<T> unit = hn::Mul(hn::Sub(hn::MaskedLoad(live, d, x + i), centre), scale);
      hn::BlendedStore(hn::MulAdd(unit, gamma.at(i, live), beta.at(i, live)), live, d, y + i);
    });
    if (g.mean != nullptr) g.mean[r] = m.mean;
    if (g.rstd != nullptr) g.rstd[r] = m.rstd;
  }
}

template <typename T>
void grad(const GroupNormGradArgs<T>& g, Range runs) {
  const Tag<T> d;
  for (int64_t r = runs.begin; r < runs.end; ++r) {
    const T *x = g.x + r * g.width, *dy = g.dy + r * g.width;
    T* dx = g.dx + r * g.width;
    const Vec<T> mean = hn::Set(d, g.mean != nullptr ? g.mean[r] : T(0));
    const Vec<T> rstd = hn::Set(d, g.rstd[r]);
    const ChannelWeights<T> gamma(g.gamma, g.first_channel(r), g.spatial, T(1));
    Vec<T> sums = hn::Zero(d), alongs = hn::Zero(d);
    for_run<T>(g.width, g.spatial, [&](int64_t i, auto live) HWY_ATTR {
      const Vec<T> slope = hn::Mul(hn::MaskedLoad(live, d, dy + i), gamma.at(i, live));
      const Vec<T> unit = hn::Mul(hn::Sub(hn::MaskedLoad(live, d, x + i), mean), rstd);
      sums = hn::Add(sums, hn::IfThenElseZero(live, slope));
      alongs = hn::Add(alongs, hn::IfThenElseZero(live, hn::Mul(slope, unit)));
    });
    const Vec<T> level = hn::Set(d, g.centred ? total<T>(sums) / T(g.width) : T(0));
    const Vec<T> tilt = hn::Set(d, total<T>(alongs) / T(g.width));
    for_run<T>(g.width, g.spatial, [&](int64_t i, auto live) HWY_ATTR {
      const Vec<T> slope = hn::Mul(hn::MaskedLoad(live, d, dy + i), gamma.at(i, live));
      const Vec<T> unit = hn::Mul(hn::Sub(hn::MaskedLoad(live, d, x + i), mean), rstd);
      const Vec<T> rest = hn::NegMulAdd(unit, tilt, hn::Sub(slope, level));
      hn::BlendedStore(hn::Mul(rstd, rest), live, d, dx + i);
    });
  }
}

// For channels of one number each, which are adjacent: vectors run along the channels.
template <typename T>
void grad_weights_flat(const GroupNormGradArgs<T>& g, Range channels) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), samples = g.runs / g.groups;
  for (int64_t c = channels.begin; c < channels.end;) {
    const int64_t group = c / g.width, end = std::min(channels.end, (group + 1) * g.width);
    const int64_t count = std::min(lanes, end - c);
    const auto live = hn::FirstN(d, size_t(count));
    Vec<T> sums = hn::Zero(d), alongs = hn::Zero(d);
    for (int64_t n = 0; n < samples; ++n) {
      const int64_t run = n * g.groups + group, at = run * g.width + c % g.width;
      const Vec<T> mean = hn::Set(d, g.mean != nullptr ? g.mean[run] : T(0));
      const Vec<T> unit =
          hn::Mul(hn::Sub(hn::MaskedLoad(live, d, g.x + at), mean), hn::Set(d, g.rstd[run]));
      const Vec<T> slope = hn::MaskedLoad(live, d, g.dy + at);
      sums = hn::Add(sums, slope);
      alongs = hn::MulAdd(slope, unit, alongs);
    }
    if (g.dbeta != nullptr) hn::BlendedStore(sums, live, d, g.dbeta + c);
    if (g.dgamma != nullptr) hn::BlendedStore(alongs, live, d, g.dgamma + c);
    c += count;
  }
}

template <typename T>
void grad_weights(const GroupNormGradArgs<T>& g, Range channels) {
  if (g.spatial == 1) return grad_weights_flat(g, channels);
  const Tag<T> d;
  const int64_t samples = g.runs / g.groups;
  for (int64_t c = channels.begin; c < channels.end; ++c) {
    const int64_t group = c * g.spatial / g.width, begin = c * g.spatial % g.width;
    Vec<T> sums = hn::Zero(d), alongs = hn::Zero(d);
    for (int64_t n = 0; n < samples; ++n) {
      const int64_t run = n * g.groups + group, at = run * g.width + begin;
      const Vec<T> mean = hn::Set(d, g.mean != nullptr ? g.mean[run] : T(0));
      const Vec<T> rstd = hn::Set(d, g.rstd[run]);
      for_vectors<T>(g.spatial, [&](int64_t i, auto live) HWY_ATTR {
        const Vec<T> unit = hn::Mul(hn::Sub(hn::MaskedLoad(live, d, g.x + at + i), mean), rstd);
        const Vec<T> slope = hn::MaskedLoad(live, d, g.dy + at + i);
        sums = hn::Add(sums, slope);
        alongs = hn::Add(alongs, hn::IfThenElseZero(live, hn::Mul(slope, unit)));
      });
    }
    if (g.dbeta != nullptr) g.dbeta[c] = total<T>(sums);
    if (g.dgamma != nullptr) g.dgamma[c] = total<T>(alongs);
  }
}

template <typename T>
inline constexpr GroupNormFunctions<T> kNormTable{forward<T>, grad<T>, grad_weights<T>};

}  // namespace group_norm

RIDGELINE_SIMD_TABLE(GroupNormFunctions, group_norm_functions, group_norm::kNormTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(GroupNormFunctions, group_norm_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
