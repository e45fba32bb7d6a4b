#include "ridgeline/cpu/simd/update.h"

#include <algorithm>

#include "ridgeline/cpu/simd/dispatch.h"

#define HWY_DISABLED_TARGETS HWY_SSSE3
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/update.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vec = hn::Vec<Tag<T>>;

// Calls f(index, mask of the live lanes) for each vector of the range.
template <typename T, class F>
HWY_INLINE void for_vectors(Range elements, F f) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t i = elements.begin; i < elements.end; i += lanes) {
    f(i, hn::FirstN(d, size_t(std::min(lanes, elements.end - i))));
  }
}

template <typename T>
void sgd(const SgdArgs<T>& g, Range elements) {
  const Tag<T> d;
  const Vec<T> lr = hn::Set(d, g.sgd.lr), decay = hn::Set(d, g.sgd.weight_decay);
  const Vec<T> momentum = hn::Set(d, g.sgd.momentum), scale = hn::Set(d, g.scale);
  for_vectors<T>(elements, [&](int64_t i, auto live) HWY_ATTR {
    Vec<T> sum = hn::MaskedLoad(live, d, g.parts + i);
    for (int64_t p = 1; p < g.count; ++p) {
      sum = hn::Add(sum, hn::MaskedLoad(live, d, g.parts + p * g.stride + i));
    }
    const Vec<T> w = hn::MaskedLoad(live, d, g.w + i);
    Vec<T> step = hn::MulAdd(decay, w, hn::Mul(sum, scale));
    if (g.m != nullptr) {
      const Vec<T> m = hn::MulAdd(momentum, hn::MaskedLoad(live, d, g.m + i), step);
      hn::BlendedStore(m, live, d, g.m + i);
      step = g.sgd.nesterov ? hn::MulAdd(momentum, m, step) : m;
    }
    hn::BlendedStore(hn::NegMulAdd(lr, step, w), live, d, g.w + i);
  });
}

template <typename T>
void adam(const AdamArgs<T>& a, Range elements) {
  const Tag<T> d;
  const Vec<T> scale = hn::Set(d, a.scale), decay = hn::Set(d, a.weight_decay);
  const Vec<T> shrink = hn::Set(d, a.lr * a.weight_decay);
  const Vec<T> rest1 = hn::Set(d, a.beta1_rest), rest2 = hn::Set(d, a.beta2_rest);
  const Vec<T> rate = hn::Set(d, a.rate), factor = hn::Set(d, a.v_factor);
  const Vec<T> epsilon = hn::Set(d, a.epsilon);
  for_vectors<T>(elements, [&](int64_t i, auto live) HWY_ATTR {
    Vec<T> w = hn::MaskedLoad(live, d, a.w + i);
    Vec<T> g = hn::Mul(hn::MaskedLoad(live, d, a.dw + i), scale);
    if (a.decoupled) {
      w = hn::NegMulAdd(shrink, w, w);
    } else {
      g = hn::MulAdd(decay, w, g);
    }
    Vec<T> m = hn::MaskedLoad(live, d, a.m + i), v = hn::MaskedLoad(live, d, a.v + i);
    m = hn::MulAdd(rest1, hn::Sub(g, m), m);
    v = hn::MulAdd(rest2, hn::Sub(hn::Mul(g, g), v), v);
    const Vec<T> root = hn::Add(hn::Sqrt(hn::Mul(v, factor)), epsilon);
    hn::BlendedStore(m, live, d, a.m + i);
    hn::BlendedStore(v, live, d, a.v + i);
    hn::BlendedStore(hn::Sub(w, hn::Div(hn::Mul(rate, m), root)), live, d, a.w + i);
  });
}

template <typename T>
inline constexpr UpdateKernels<T> kUpdateTable{sgd<T>, adam<T>};
RIDGELINE_SIMD_TABLE(UpdateKernels, update_kernels, kUpdateTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(UpdateKernels, update_kernels);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
