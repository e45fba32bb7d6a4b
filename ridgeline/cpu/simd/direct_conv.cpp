#include "ridgeline/cpu/simd/direct_conv.h"

#include <algorithm>

#include "ridgeline/cpu/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/direct_conv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/conv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace direct_conv {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of pixels per tile: 6 x 4 sums in 32 registers, 6 x 2 in 16.
constexpr int kMostVectors = kManyRegisters ? 4 : 2;

// Sums kRows channels over all taps, for kVectors vectors of pixels from x on.
template <int kRows, int kVectors, typename T>
HWY_NOINLINE void sum_tile(const DirectShape& s, const T* HWY_RESTRICT filters, const T* x, T* sums,
                           int64_t ld) {
  const Tag<T> d;
  Vec<T> acc[kRows][kVectors];
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) acc[m][j] = hn::Zero(d);
  }
  const int64_t plane = s.padded_h() * s.pitch();
  for (int64_t c = 0; c < s.c; ++c) {
    for (int64_t u = 0; u < s.kernel_h; ++u) {
      accumulate<kRows, kVectors, Along::m, T>(s.kernel_w, filters, kRows,
                                               x + c * plane + u * s.pitch(), 1, acc);
      filters += s.kernel_w * kRows;
    }
  }
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      hn::StoreU(acc[m][j], d, sums + m * ld + j * int64_t(hn::Lanes(d)));
    }
  }
}

template <int kRows, typename T>
void sum_vectors(int vectors, const DirectShape& s, const T* filters, const T* x, T* sums,
                 int64_t ld) {
  switch (vectors) {
    case 1:
      return sum_tile<kRows, 1>(s, filters, x, sums, ld);
    case 2:
      return sum_tile<kRows, 2>(s, filters, x, sums, ld);
    case 3:
      return sum_tile<kRows, std::min(3, kMostVectors)>(s, filters, x, sums, ld);
    default:
      return sum_tile<kRows, kMostVectors>(s, filters, x, sums, ld);
  }
}

// Computes `rows` channels by `count` pixels, in tiles as even as possible.
template <typename T>
void sum_pixels(int64_t rows, const DirectShape& s, const T* filters, const T* x, int64_t count,
                T* sums, int64_t ld) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  const int64_t vectors = (count + lanes - 1) / lanes;
  const int64_t tiles = (vectors + kMostVectors - 1) / kMostVectors;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = vectors * tile / tiles, last = vectors * (tile + 1) / tiles;
    const auto run = [&](auto sum) {
      sum(int(last - first), s, filters, x + first * lanes, sums + first * lanes, ld);
    };
    switch (rows) {
      case 1:
        run(sum_vectors<1, T>);
        break;
      case 2:
        run(sum_vectors<2, T>);
        break;
      case 3:
        run(sum_vectors<3, T>);
        break;
      case 4:
        run(sum_vectors<4, T>);
        break;
      case 5:
        run(sum_vectors<5, T>);
        break;
      default:
        run(sum_vectors<int(kDirectBlock), T>);
        break;
    }
  }
}

// Replaces `upper` by the maximum of neighbours in `upper` and `lower`; memory past their end must
// be readable.
template <typename T>
void pool_row(T* upper, const T* lower, int64_t count) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t q = 0; q < count; q += lanes) {
    Vec<T> left, right, lower_left, lower_right;
    hn::LoadInterleaved2(d, upper + 2 * q, left, right);
    hn::LoadInterleaved2(d, lower + 2 * q, lower_left, lower_right);
    const Vec<T> most = nan_max(d, nan_max(d, left, right), nan_max(d, lower_left, lower_right));
    hn::StoreU(most, d, upper + q);  // elements still to be read are further on
  }
}

template <typename T>
void direct_image(const DirectArgs<T>& args, const T* x, T* y, T* scratch) {
  const DirectShape& s = args.shape;
  const int64_t pitch = s.pitch(), plane = s.padded_h() * pitch;
  T* image = scratch;
  T* sums = scratch + direct_thread_elements<T>(s) - size_t(kDirectBlock) * direct_sums_ld<T>(s);
  if (s.pad_h > 0 || s.pad_w > 0) std::fill(image, image + s.c * plane, T(0));
  for (int64_t c = 0; c < s.c; ++c) {
    for (int64_t row = 0; row < s.h; ++row) {
      std::copy_n(x + (c * s.h + row) * s.w, s.w,
                  image + c * plane + (row + s.pad_h) * pitch + s.pad_w);
    }
  }
  const int64_t out_h = s.out_h(), out_w = s.out_w(), ld = direct_sums_ld<T>(s);
  const int64_t rows = s.pooled ? out_h / 2 * 2 : out_h;  // a pool ignores an odd row
  for (int64_t p = 0; p < rows; p += 2) {
    const int64_t here = std::min<int64_t>(2, rows - p);
    const T* filters = args.filters;
    for (int64_t block = 0; block < direct_blocks(s.k); ++block) {
      const auto [begin, end] = direct_block(s.k, block);
      sum_pixels(end - begin, s, filters, image + p * pitch, (here - 1) * pitch + out_w, sums, ld);
      filters += (end - begin) * s.c * s.kernel_h * s.kernel_w;
      for (int64_t o = begin; o < end; ++o) {
        T* mine = sums + (o - begin) * ld;
        const T bias = args.bias != nullptr ? args.bias[o] : T(0);
        if (s.pooled) {
          pool_row(mine, mine + pitch, out_w / 2);
          finish_row(args.act, bias, mine, out_w / 2, y + (o * (out_h / 2) + p / 2) * (out_w / 2));
          continue;
        }
        for (int64_t r = 0; r < here; ++r) {
          finish_row(args.act, bias, mine + r * pitch, out_w, y + (o * out_h + p + r) * out_w);
        }
      }
    }
  }
}

template <typename T>
void pool_plane(const T* x, int64_t h, int64_t w, T* y) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), wide = w / 2;
  for (int64_t p = 0; p < h / 2; ++p, x += 2 * w, y += wide) {
    for (int64_t q = 0; q < wide; q += lanes) {
      const auto larger = [&](const T* row) HWY_ATTR {
#if HWY_TARGET == HWY_SCALAR
        return nan_max(d, hn::LoadU(d, row + 2 * q), hn::LoadU(d, row + 2 * q + 1));
#else
        const int64_t left = 2 * (wide - q);
        const auto first = hn::FirstN(d, size_t(std::min(left, lanes)));
        const auto second = hn::FirstN(d, size_t(std::clamp<int64_t>(left - lanes, 0, lanes)));
        const Vec<T> a = hn::MaskedLoad(first, d, row + 2 * q);
        const Vec<T> b = hn::MaskedLoad(second, d, row + 2 * q + lanes);
        return nan_max(d, hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
#endif
      };
      const auto live = hn::FirstN(d, size_t(std::min(lanes, wide - q)));
      hn::BlendedStore(nan_max(d, larger(x), larger(x + w)), live, d, y + q);
    }
  }
}

template <typename T>
constexpr DirectFunctions<T> kDirect{direct_image<T>, pool_plane<T>};

}  // namespace direct_conv

RIDGELINE_SIMD_TABLE(DirectFunctions, direct_functions, direct_conv::kDirect)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(DirectFunctions, direct_functions);

size_t direct_filter_elements(const DirectShape& shape) {
  return size_t(shape.k * shape.c * shape.kernel_h * shape.kernel_w);
}

template <typename T>
void arrange_filters(const DirectShape& shape, const T* w, bool flipped, T* filters) {
  const int64_t area = shape.kernel_h * shape.kernel_w, taps = shape.c * area;
  for (int64_t block = 0; block < direct_blocks(shape.k); ++block) {
    const auto [begin, end] = direct_block(shape.k, block);
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t c = tap / area, last = area - 1 - tap % area;
      for (int64_t o = begin; o < end; ++o) {
        *filters++ = flipped ? w[(c * shape.k + o) * area + last] : w[o * taps + tap];
      }
    }
  }
}
template void arrange_filters(const DirectShape&, const float*, bool, float*);
template void arrange_filters(const DirectShape&, const double*, bool, double*);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
