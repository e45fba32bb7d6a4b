#include "ridgeline/cpu/simd/update.h"

#include <limits>

#include "ridgeline/core/flush_denormals.h"
#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/update.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace update {

// Loads and stores a vector: all of it, or its first lanes. Masked stores take a dozen cycles each
// on some CPUs, so only the last vector of a range uses them.
template <typename T>
struct FullVector {
  static HWY_INLINE Vec<T> load(const T* from) { return hn::LoadU(Tag<T>(), from); }
  static HWY_INLINE void store(Vec<T> v, T* to) { hn::StoreU(v, Tag<T>(), to); }
};
template <typename T>
struct FirstLanes {
  size_t live;
  HWY_INLINE Vec<T> load(const T* from) const {
    const Tag<T> d;
    return hn::MaskedLoad(hn::FirstN(d, live), d, from);
  }
  HWY_INLINE void store(Vec<T> v, T* to) const {
    const Tag<T> d;
    hn::BlendedStore(v, hn::FirstN(d, live), d, to);
  }
};

// Calls f(index, load/store policy) for each vector of the range.
template <typename T, class F>
HWY_INLINE void for_vectors(Range elements, F f) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  int64_t i = elements.begin;
  for (; i + lanes <= elements.end; i += lanes) f(i, FullVector<T>());
  if (i < elements.end) f(i, FirstLanes<T>{size_t(elements.end - i)});
}

// Returns the gradient, which is the sum of its parts.
template <typename T, class Args, class Lanes>
HWY_INLINE Vec<T> sum_parts(const Args& g, int64_t i, const Lanes& lanes) {
  Vec<T> sum = lanes.load(g.parts + i);
  for (int64_t p = 1; p < g.count; ++p) {
    sum = hn::Add(sum, lanes.load(g.parts + p * g.stride + i));
  }
  return hn::Mul(sum, hn::Set(Tag<T>(), g.scale));
}

template <typename T>
void sgd(const SgdArgs<T>& g, Range elements) {
  const FlushDenormals flush;
  const Tag<T> d;
  const Vec<T> lr = hn::Set(d, g.sgd.lr), decay = hn::Set(d, g.sgd.weight_decay);
  const Vec<T> momentum = hn::Set(d, g.sgd.momentum);
  for_vectors<T>(elements, [&](int64_t i, auto lanes) HWY_ATTR {
    const Vec<T> w = lanes.load(g.w + i);
    Vec<T> step = hn::MulAdd(decay, w, sum_parts<T>(g, i, lanes));
    if (g.m != nullptr) {
      const Vec<T> m = hn::MulAdd(momentum, lanes.load(g.m + i), step);
      lanes.store(m, g.m + i);
      step = g.sgd.nesterov ? hn::MulAdd(momentum, m, step) : m;
    }
    lanes.store(hn::NegMulAdd(lr, step, w), g.w + i);
  });
}

// Returns moment + rest * (target - moment), or zero if that would be denormal. Without FMA the
// product alone is flushed, so that a moment below least / rest would never decay further: it
// becomes zero, too.
template <typename T>
HWY_INLINE Vec<T> decayed(Vec<T> moment, Vec<T> rest, Vec<T> target) {
  const Vec<T> now = hn::MulAdd(rest, hn::Sub(target, moment), moment);
#if HWY_NATIVE_FMA
  return now;
#else
  const Vec<T> least = hn::Div(hn::Set(Tag<T>(), std::numeric_limits<T>::min()), rest);
  return hn::IfThenZeroElse(hn::Lt(hn::Abs(now), least), now);  // NaN stays NaN
#endif
}

template <typename T>
void adam(const AdamArgs<T>& args, Range elements) {
  const FlushDenormals flush;
  const Tag<T> d;
  const Adam<T>& a = args.adam;
  const Vec<T> decay = hn::Set(d, a.weight_decay);
  const Vec<T> shrink = hn::Set(d, a.lr * a.weight_decay);
  const Vec<T> rest1 = hn::Set(d, a.beta1_rest), rest2 = hn::Set(d, a.beta2_rest);
  const Vec<T> rate = hn::Set(d, a.rate), factor = hn::Set(d, a.v_factor);
  const Vec<T> epsilon = hn::Set(d, a.epsilon);
  for_vectors<T>(elements, [&](int64_t i, auto lanes) HWY_ATTR {
    Vec<T> w = lanes.load(args.w + i);
    Vec<T> g = sum_parts<T>(args, i, lanes);
    if (a.decoupled) {
      w = hn::NegMulAdd(shrink, w, w);
    } else {
      g = hn::MulAdd(decay, w, g);
    }
    const Vec<T> m = decayed<T>(lanes.load(args.m + i), rest1, g);
    const Vec<T> v = decayed<T>(lanes.load(args.v + i), rest2, hn::Mul(g, g));
    const Vec<T> root = hn::Add(hn::Sqrt(hn::Mul(v, factor)), epsilon);
    lanes.store(m, args.m + i);
    lanes.store(v, args.v + i);
    lanes.store(hn::Sub(w, hn::Div(hn::Mul(rate, m), root)), args.w + i);
  });
}

template <typename T>
double squares(const T* of, int64_t count) {
  const hn::ScalableTag<double> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto load = [&](const T* from) HWY_ATTR {
    if constexpr (sizeof(T) == 4) {
      return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, decltype(d)>(), from));
    } else {
      return hn::LoadU(d, from);
    }
  };
  constexpr int kChains = 4;  // independent sums, so that additions overlap
  hn::Vec<decltype(d)> sums[kChains];
  for (auto& sum : sums) sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kChains * lanes <= count; i += kChains * lanes) {
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) {
      const auto v = load(of + i + c * lanes);
      sums[c] = hn::MulAdd(v, v, sums[c]);
    }
  }
  double rest = 0;
  for (; i < count; ++i) rest += double(of[i]) * double(of[i]);
  return rest + hn::GetLane(hn::SumOfLanes(
                    d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

template <typename T>
inline constexpr UpdateFunctions<T> kUpdateTable{sgd<T>, adam<T>, squares<T>};

}  // namespace update

RIDGELINE_SIMD_TABLE(UpdateFunctions, update_functions, update::kUpdateTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(UpdateFunctions, update_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
