#include "ridgeline/cpu/simd/blocked_norm.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/blocked_norm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/conv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace blocked_norm {
namespace hn = hwy::HWY_NAMESPACE;

using V = Vec<float>;
constexpr Tag<float> kTag;

int64_t norm_lanes() { return int64_t(hn::Lanes(kTag)); }

// Calls f(index of its first pixel in an image, that in a pooled image, first channel) for each
// vector of channels of each sample.
template <class F>
HWY_INLINE void for_channels(const BlockedNormShape& s, Range samples, F&& f) {
  const int64_t small = (s.h / 2) * (s.w / 2);
  for (int64_t i = samples.begin; i < samples.end; ++i) {
    for (int64_t b = 0; b < s.blocks(); ++b) {
      for (int64_t c = 0; c < s.block; c += norm_lanes()) {
        const int64_t image = i * s.blocks() + b;
        f(image * s.pixels() * s.block + c, image * small * s.block + c, b * s.block + c);
      }
    }
  }
}

// Returns the sum of f(pixel's vector) over an image, in four independent sums.
template <class F>
HWY_INLINE V sum_pixels(const float* x, int64_t pixels, int64_t block, F f) {
  V sums[4] = {hn::Zero(kTag), hn::Zero(kTag), hn::Zero(kTag), hn::Zero(kTag)};
  int64_t p = 0;
  for (; p + 4 <= pixels; p += 4) {
    RIDGELINE_UNROLL
    for (int k = 0; k < 4; ++k) {
      sums[k] = f(sums[k], hn::LoadU(kTag, x + (p + k) * block));
    }
  }
  for (; p < pixels; ++p) sums[0] = f(sums[0], hn::LoadU(kTag, x + p * block));
  return hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
}

// The mean of a channel's pixels and the sum of the squares of what they are off it, in double.
void exact_statistics(const float* x, int64_t pixels, int64_t block, double& mean,
                      double& squares) {
  mean = squares = 0;
  for (int64_t p = 0; p < pixels; ++p) mean += double(x[p * block]);
  mean /= double(pixels);
  for (int64_t p = 0; p < pixels; ++p) {
    const double off = double(x[p * block]) - mean;
    squares += off * off;
  }
}

// An image at a time, twice: the second pass finds it in the cache. Images are added up in double.
// So are the pixels of an image whose sums overflow in float, as squares of numbers above 1e19 do.
void statistics(const BlockedNormShape& s, const float* x, Range samples, int64_t others,
                const ChannelStatistics& to) {
  const int64_t lanes = norm_lanes();
  if (others == 0) {
    std::fill_n(to.mean, s.padded(), 0.0);
    std::fill_n(to.squares, s.padded(), 0.0);
  }
  const double pixels = double(s.pixels());
  for_channels(s, samples, [&](int64_t at, int64_t, int64_t c) HWY_ATTR {
    const V sum = sum_pixels(x + at, s.pixels(), s.block,
                             [](V to_add, V v) HWY_ATTR { return hn::Add(to_add, v); });
    const V mean = hn::Mul(sum, hn::Set(kTag, float(1 / pixels)));
    const V squares = sum_pixels(x + at, s.pixels(), s.block, [&](V to_add, V v) HWY_ATTR {
      const V off = hn::Sub(v, mean);
      return hn::MulAdd(off, off, to_add);
    });
    HWY_ALIGN float means[HWY_MAX_BYTES / 4] = {}, deviations[HWY_MAX_BYTES / 4] = {};
    hn::Store(mean, kTag, means);
    hn::Store(squares, kTag, deviations);
    const bool finite = hn::AllTrue(kTag, hn::IsFinite(squares));
    // How many samples came before follows from the place.
    const int64_t sample = at / (s.padded() * s.pixels());
    const double before = double(others + sample - samples.begin) * pixels;
    for (int64_t k = 0; k < lanes; ++k) {
      double own_mean = double(means[k]), own_squares = double(deviations[k]);
      if (!finite) exact_statistics(x + at + k, s.pixels(), s.block, own_mean, own_squares);
      const double off = own_mean - to.mean[c + k];
      to.mean[c + k] += off * pixels / (before + pixels);
      to.squares[c + k] += own_squares + off * off * before * pixels / (before + pixels);
    }
  });
}

// The four pixels of a pool's window, starting with the upper left one.
struct Square {
  V at[4];

  static HWY_INLINE Square load(const float* from, int64_t row, int64_t block) {
    return {{hn::LoadU(kTag, from), hn::LoadU(kTag, from + block), hn::LoadU(kTag, from + row),
             hn::LoadU(kTag, from + row + block)}};
  }
  HWY_INLINE void store(float* to, int64_t row, int64_t block) const {
    hn::StoreU(at[0], kTag, to);
    hn::StoreU(at[1], kTag, to + block);
    hn::StoreU(at[2], kTag, to + row);
    hn::StoreU(at[3], kTag, to + row + block);
  }
  HWY_INLINE V largest() const {
    return nan_max(kTag, nan_max(kTag, at[0], at[1]), nan_max(kTag, at[2], at[3]));
  }
};

// Calls square(index of the upper left pixel, index in the pooled image) for each window, then
// single(index) for each pixel that is in no window.
template <class F, class G>
HWY_INLINE void for_windows(const BlockedNormShape& s, int64_t at, int64_t at_pooled, F&& square,
                            G&& single) {
  const int64_t high = s.pooled ? s.h / 2 * 2 : 0, wide = s.pooled ? s.w / 2 * 2 : 0;
  for (int64_t r = 0; r < high; r += 2) {
    for (int64_t q = 0; q < wide; q += 2, at_pooled += s.block) {
      square(at + (r * s.w + q) * s.block, at_pooled);
    }
  }
  for (int64_t r = 0; r < s.h; ++r) {
    for (int64_t q = r < high ? wide : 0; q < s.w; ++q) single(at + (r * s.w + q) * s.block);
  }
}

void forward(const BlockedNormArgs& g, Range samples) {
  const BlockedNormShape& s = g.shape;
  const int64_t row = s.w * s.block;
  for_channels(s, samples, [&](int64_t at, int64_t at_pooled, int64_t c) HWY_ATTR {
    const V mean = hn::LoadU(kTag, g.mean + c), scale = hn::LoadU(kTag, g.scale + c);
    const V beta = hn::LoadU(kTag, g.beta + c);
    const auto rectified = [&](V v) HWY_ATTR {
      return hn::Max(hn::Zero(kTag), hn::MulAdd(hn::Sub(v, mean), scale, beta));
    };
    for_windows(
        s, at, at_pooled,
        [&](int64_t from, int64_t to) HWY_ATTR {
          Square a = Square::load(g.x + from, row, s.block);
          RIDGELINE_UNROLL
          for (int k = 0; k < 4; ++k) a.at[k] = rectified(a.at[k]);
          if (g.a != nullptr) a.store(g.a + from, row, s.block);
          hn::StoreU(a.largest(), kTag, g.pooled + to);
        },
        [&](int64_t from) HWY_ATTR {
          if (g.a != nullptr) hn::StoreU(rectified(hn::LoadU(kTag, g.x + from)), kTag, g.a + from);
        });
  });
}

using VI = hn::Vec<hn::RebindToSigned<Tag<float>>>;
constexpr hn::RebindToSigned<Tag<float>> kIntegers;
constexpr hn::Rebind<uint8_t, Tag<float>> kBytes;

// Returns which pixel of a window receives its gradient: the first of the largest outputs of the
// ReLU, none (4) if these are zero.
HWY_INLINE VI chosen_pixel(const Square& a) {
  const V most = a.largest();
  VI chosen = hn::Set(kIntegers, 4);
  RIDGELINE_UNROLL
  for (int k = 3; k >= 0; --k) {
    const auto here = hn::RebindMask(kIntegers, hn::Eq(a.at[k], most));
    chosen = hn::IfThenElse(here, hn::Set(kIntegers, k), chosen);
  }
  const auto any = hn::RebindMask(kIntegers, hn::Gt(most, hn::Zero(kTag)));
  return hn::IfThenElse(any, chosen, hn::Set(kIntegers, 4));
}

// The gradient of the ReLU's input in a window.
struct WindowGrad {
  V d[4];

  HWY_INLINE WindowGrad(VI chosen, V dy) {
    RIDGELINE_UNROLL
    for (int k = 0; k < 4; ++k) {
      const auto here = hn::RebindMask(kTag, hn::Eq(chosen, hn::Set(kIntegers, k)));
      d[k] = hn::IfThenElseZero(here, dy);
    }
  }
};

HWY_INLINE V relu_grad(V a, V dy) { return hn::IfThenElseZero(hn::Gt(a, hn::Zero(kTag)), dy); }

void sums(const BlockedNormGradArgs& g, Range samples, double* dbeta, double* dgamma) {
  const BlockedNormShape& s = g.shape;
  const int64_t row = s.w * s.block;
  std::fill_n(dbeta, s.padded(), 0.0);
  std::fill_n(dgamma, s.padded(), 0.0);
  for_channels(s, samples, [&](int64_t at, int64_t at_pooled, int64_t c) HWY_ATTR {
    const V mean = hn::LoadU(kTag, g.mean + c), rstd = hn::LoadU(kTag, g.rstd + c);
    V of_d = hn::Zero(kTag), of_product = hn::Zero(kTag);
    const auto add = [&](V d, V x) HWY_ATTR {
      of_d = hn::Add(of_d, d);
      of_product = hn::MulAdd(d, hn::Mul(hn::Sub(x, mean), rstd), of_product);
    };
    for_windows(
        s, at, at_pooled,
        [&](int64_t from, int64_t to) HWY_ATTR {
          const VI chosen = chosen_pixel(Square::load(g.a + from, row, s.block));
          hn::StoreU(hn::DemoteTo(kBytes, chosen), kBytes, g.chosen + to);
          const WindowGrad grad(chosen, hn::LoadU(kTag, g.dy + to));
          const Square x = Square::load(g.x + from, row, s.block);
          RIDGELINE_UNROLL
          for (int k = 0; k < 4; ++k) add(grad.d[k], x.at[k]);
        },
        [&](int64_t from) HWY_ATTR {
          if (s.pooled) return;  // it is in no window
          add(relu_grad(hn::LoadU(kTag, g.a + from), hn::LoadU(kTag, g.dy + from)),
              hn::LoadU(kTag, g.x + from));
        });
    HWY_ALIGN float parts[2][HWY_MAX_BYTES / 4] = {};
    hn::Store(of_d, kTag, parts[0]);
    hn::Store(of_product, kTag, parts[1]);
    for (int64_t k = 0; k < norm_lanes(); ++k) {
      dbeta[c + k] += double(parts[0][k]);
      dgamma[c + k] += double(parts[1][k]);
    }
  });
}

void grad(const BlockedNormGradArgs& g, Range samples) {
  const BlockedNormShape& s = g.shape;
  const int64_t row = s.w * s.block, skipped = g.dx_first * s.padded() * s.pixels();
  for_channels(s, samples, [&](int64_t at, int64_t at_pooled, int64_t c) HWY_ATTR {
    const V mean = hn::LoadU(kTag, g.mean + c), rstd = hn::LoadU(kTag, g.rstd + c);
    const V scale = hn::LoadU(kTag, g.scale + c), offset = hn::LoadU(kTag, g.offset + c);
    const V slope = hn::LoadU(kTag, g.slope + c);
    const auto input = [&](V d, V x) HWY_ATTR {
      const V unit = hn::Mul(hn::Sub(x, mean), rstd);
      return hn::Mul(hn::NegMulAdd(unit, slope, hn::Sub(d, offset)), scale);
    };
    for_windows(
        s, at, at_pooled,
        [&](int64_t from, int64_t to) HWY_ATTR {
          const WindowGrad window(hn::PromoteTo(kIntegers, hn::LoadU(kBytes, g.chosen + to)),
                                  hn::LoadU(kTag, g.dy + to));
          Square x = Square::load(g.x + from, row, s.block);
          RIDGELINE_UNROLL
          for (int k = 0; k < 4; ++k) x.at[k] = input(window.d[k], x.at[k]);
          x.store(g.dx + (from - skipped), row, s.block);
        },
        [&](int64_t from) HWY_ATTR {
          const V d = s.pooled
                          ? hn::Zero(kTag)
                          : relu_grad(hn::LoadU(kTag, g.a + from), hn::LoadU(kTag, g.dy + from));
          hn::StoreU(input(d, hn::LoadU(kTag, g.x + from)), kTag, g.dx + (from - skipped));
        });
  });
}

constexpr BlockedNormFunctions kBlockedNorm{norm_lanes, statistics, forward, sums, grad};

}  // namespace blocked_norm

const BlockedNormFunctions* blocked_norm_table() { return &blocked_norm::kBlockedNorm; }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

HWY_EXPORT(blocked_norm_table);
const BlockedNormFunctions& blocked_norm_functions() {
  return *HWY_DYNAMIC_DISPATCH(blocked_norm_table)();
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
