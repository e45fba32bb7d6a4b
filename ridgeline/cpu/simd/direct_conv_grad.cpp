#include "ridgeline/cpu/simd/direct_conv_grad.h"

#include <algorithm>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/direct_conv_grad.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace direct_conv_grad {
namespace hn = hwy::HWY_NAMESPACE;

// Sums in registers: of 32, 24 leave enough for their operands; of 16, 10 do.
constexpr int kMostSums = kManyRegisters ? 24 : 10;

constexpr int rows_for(int taps) { return std::clamp(kMostSums / taps, 1, 6); }

// Images whose planes of a block stay in the first- and second-level caches during the loop over
// input channels.
constexpr int64_t kImagesAtOnce = 8;

// sums[m][j] (vectors) += dy plane m by x shifted by j, over the images [begin, end).
template <int kRows, int kTaps, typename T>
HWY_NOINLINE void add_products(const DirectGradArgs<T>& g, Range images, int64_t o, int64_t c,
                               int64_t u, T* sums) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), plane = direct_plane<T>(g.shape);
  Vec<T> acc[kRows][kTaps];
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kTaps; ++j) acc[m][j] = hn::LoadU(d, sums + (m * kTaps + j) * lanes);
  }
  const int64_t length = (g.shape.out_h() - 1) * g.shape.pitch() + g.shape.out_w();
  for (int64_t i = images.begin; i < images.end; ++i) {
    const T* HWY_RESTRICT x = g.padded_x + (i * g.shape.c + c) * plane + u * g.shape.pitch();
    const T* HWY_RESTRICT dy = g.padded_dy + (i * g.shape.k + o) * plane;
    for (int64_t t = 0; t < length; t += lanes) {
      Vec<T> slope[kRows];
      RIDGELINE_UNROLL
      for (int m = 0; m < kRows; ++m) slope[m] = hn::LoadU(d, dy + m * plane + t);
      RIDGELINE_UNROLL
      for (int j = 0; j < kTaps; ++j) {
        const Vec<T> value = hn::LoadU(d, x + t + j);
        RIDGELINE_UNROLL
        for (int m = 0; m < kRows; ++m) acc[m][j] = hn::MulAdd(slope[m], value, acc[m][j]);
      }
    }
  }
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kTaps; ++j) hn::StoreU(acc[m][j], d, sums + (m * kTaps + j) * lanes);
  }
}

// Computes a block of rows_for(kTaps) outputs, or one at a time if fewer are left.
template <int kTaps, typename T>
void add_block(const DirectGradArgs<T>& g, Range images, Range outputs, int64_t c, int64_t u,
               T* sums) {
  constexpr int kRows = rows_for(kTaps);
  if (outputs.end - outputs.begin == kRows) {
    add_products<kRows, kTaps>(g, images, outputs.begin, c, u, sums);
    return;
  }
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  for (int64_t o = outputs.begin; o < outputs.end; ++o, sums += kTaps * lanes) {
    add_products<1, kTaps>(g, images, o, c, u, sums);
  }
}

template <typename T>
using AddBlock = void (*)(const DirectGradArgs<T>&, Range, Range, int64_t, int64_t, T*);
template <typename T>
constexpr AddBlock<T> kAddBlock[] = {nullptr,         add_block<1, T>, add_block<2, T>,
                                     add_block<3, T>, add_block<4, T>, add_block<5, T>,
                                     add_block<6, T>, add_block<7, T>};

inline int64_t grad_block(int64_t kernel_w) { return rows_for(int(kernel_w)); }

template <typename T>
size_t grad_scratch(const DirectShape& s) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  return size_t(s.c * s.kernel_h * s.kernel_w * grad_block(s.kernel_w) * lanes);
}

template <typename T>
void pad_images(const DirectGradArgs<T>& g, Range images) {
  const DirectShape& s = g.shape;
  const int64_t plane = direct_plane<T>(s), pitch = s.pitch();
  const auto pad = [&](const T* from, int64_t h, int64_t w, int64_t down, int64_t right, T* to) {
    std::fill(to, to + plane, T(0));
    for (int64_t row = 0; row < h; ++row) {
      std::copy_n(from + row * w, w, to + (row + down) * pitch + right);
    }
  };
  for (int64_t p = images.begin * s.c; p < images.end * s.c; ++p) {
    pad(g.x + p * s.h * s.w, s.h, s.w, s.pad_h, s.pad_w, g.padded_x + p * plane);
  }
  for (int64_t p = images.begin * s.k; p < images.end * s.k; ++p) {
    pad(g.dy + p * s.out_h() * s.out_w(), s.out_h(), s.out_w(), 0, 0, g.padded_dy + p * plane);
  }
}

// Computes db of an output, whose padding is zero.
template <typename T>
T sum_slopes(const DirectGradArgs<T>& g, int64_t o) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), plane = direct_plane<T>(g.shape);
  const int64_t length = (g.shape.out_h() - 1) * g.shape.pitch() + g.shape.out_w();
  Vec<T> sum = hn::Zero(d);
  for (int64_t i = 0; i < g.n; ++i) {
    const T* dy = g.padded_dy + (i * g.shape.k + o) * plane;
    for (int64_t t = 0; t < length; t += lanes) sum = hn::Add(sum, hn::LoadU(d, dy + t));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <typename T>
void gradient(const DirectGradArgs<T>& g, Range units, T* scratch) {
  const Tag<T> d;
  const DirectShape& s = g.shape;
  const int64_t lanes = int64_t(hn::Lanes(d)), rows = grad_block(s.kernel_w);
  const int64_t each = s.c * s.kernel_h, sums = s.kernel_w * rows * lanes;  // per unit
  for (int64_t block = units.begin / each; block * each < units.end; ++block) {
    const Range outputs{block * rows, std::min(s.k, (block + 1) * rows)};
    const Range mine{std::max(units.begin - block * each, int64_t{0}),
                     std::min(units.end - block * each, each)};
    std::fill(scratch + mine.begin * sums, scratch + mine.end * sums, T(0));
    for (int64_t i = 0; i < g.n; i += kImagesAtOnce) {
      const Range images{i, std::min(g.n, i + kImagesAtOnce)};
      for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
        kAddBlock<T>[s.kernel_w](g, images, outputs, unit / s.kernel_h, unit % s.kernel_h,
                                 scratch + unit * sums);
      }
    }
    for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
      for (int64_t o = outputs.begin; o < outputs.end; ++o) {
        for (int64_t v = 0; v < s.kernel_w; ++v) {
          const T* sum = scratch + unit * sums + ((o - outputs.begin) * s.kernel_w + v) * lanes;
          g.dw[(o * each + unit) * s.kernel_w + v] =
              hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, sum)));
        }
      }
    }
    if (g.db == nullptr || mine.begin != 0) continue;
    for (int64_t o = outputs.begin; o < outputs.end; ++o) g.db[o] = sum_slopes(g, o);
  }
}

template <typename T>
constexpr DirectGradFunctions<T> kDirectGrad{grad_block, grad_scratch<T>, pad_images<T>,
                                             gradient<T>};

}  // namespace direct_conv_grad

RIDGELINE_SIMD_TABLE(DirectGradFunctions, direct_grad_functions, direct_conv_grad::kDirectGrad)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(DirectGradFunctions, direct_grad_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
