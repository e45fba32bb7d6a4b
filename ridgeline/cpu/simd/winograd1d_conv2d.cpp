#include "ridgeline/cpu/simd/winograd1d_conv2d.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/winograd1d_conv2d.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/conv-inl.h"
#include "ridgeline/ops/winograd1d.h"

#ifndef RIDGELINE_CPU_SIMD_WINOGRAD1D_CONV2D_ONCE_
#define RIDGELINE_CPU_SIMD_WINOGRAD1D_CONV2D_ONCE_
namespace ridgeline::cpu::simd {

template <int kPairs>
inline constexpr Winograd1dMatrix<kPairs> kWinograd1dMatrix{};

}  // namespace ridgeline::cpu::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace winograd1d_conv2d {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of a tile of sums: 6 x 4 in 32 registers, 6 x 2 in 16.
constexpr int kSumVectors = kManyRegisters ? 4 : 2;

// The order of points is always 0, then p and -p of each pair, then infinity.
template <int kOutputs, int kPairs>
void filter_blocks(const Winograd1dConv2dShape& shape, const float* w, float* u, Range blocks) {
  constexpr int kPoints = 2 * kPairs + 2, kTaps = kPoints + 1 - kOutputs;
  constexpr const Winograd1dMatrix<kPairs>& matrix = kWinograd1dMatrix<kPairs>;
  const DirectShape& s = shape.conv;
  const int64_t taps = s.c * s.kernel_h;  // rows of the filter over all channels
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const auto [begin, end] = direct_block(s.k, block);
    const int64_t count = end - begin;
    float* to = u + begin * taps * kPoints;
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t o = begin; o < end; ++o) {
        const float* row = w + (o * taps + tap) * kTaps;
        const auto put = [&, column = o - begin](int point, double value) {
          to[(point * taps + tap) * count + column] = float(value);
        };
        put(0, matrix.zero_scale * double(row[0]));
        for (int i = 0; i < kPairs; ++i) {
          const double p = matrix.points[i], y = p * p;
          double even = 0, odd = 0;
          for (int k = kTaps - 1; k >= 0; k -= 2) even = even * y + double(row[k]);
          for (int k = kTaps - 2; k >= 0; k -= 2) odd = odd * y + double(row[k]);
          put(1 + 2 * i, matrix.pair_scale[i] * (even + p * odd));
          put(2 + 2 * i, matrix.pair_scale[i] * (even - p * odd));
        }
        put(kPoints - 1, row[kTaps - 1]);
      }
    }
  }
}

// Computes v of a row's tiles, each point's `stride` after that of the point before. The row is
// stored in phases, one per output of a tile, `phase` apart: number kOutputs t + j is the t-th of
// phase j. Writes whole vectors, past the last tile.
template <int kOutputs, int kPairs, class D>
HWY_INLINE void transform_row(D d, const float* HWY_RESTRICT row, int64_t phase, int64_t tiles,
                              float* HWY_RESTRICT v, int64_t stride) {
  constexpr int kPoints = 2 * kPairs + 2;
  constexpr const Winograd1dMatrix<kPairs>& matrix = kWinograd1dMatrix<kPairs>;
  using V = hn::Vec<D>;
  const auto set = [&](double value) HWY_ATTR { return hn::Set(d, float(value)); };
  for (int64_t t = 0; t < tiles; t += int64_t(hn::Lanes(d))) {
    V a[kPoints];
    RIDGELINE_UNROLL
    for (int k = 0; k < kPoints; ++k)
      a[k] = hn::LoadU(d, row + k % kOutputs * phase + t + k / kOutputs);
    const auto put = [&](int p, V value) HWY_ATTR { hn::StoreU(value, d, v + p * stride + t); };
    V zero = a[2 * kPairs], infinity = a[2 * kPairs + 1];  // leading coefficients are 1
    RIDGELINE_UNROLL
    for (int k = kPairs - 1; k >= 0; --k) {
      zero = hn::MulAdd(set(matrix.all[k]), a[2 * k], zero);
      infinity = hn::MulAdd(set(matrix.all[k]), a[2 * k + 1], infinity);
    }
    put(0, zero);
    put(kPoints - 1, infinity);
    RIDGELINE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      V even = a[2 * kPairs], odd = a[2 * kPairs - 1];
      RIDGELINE_UNROLL
      for (int k = kPairs - 2; k >= 0; --k) {
        even = hn::MulAdd(set(matrix.others[i][k]), a[2 * k + 2], even);
        odd = hn::MulAdd(set(matrix.others[i][k]), a[2 * k + 1], odd);
      }
      const V p = set(matrix.points[i]);
      put(1 + 2 * i, hn::MulAdd(p, odd, even));
      put(2 + 2 * i, hn::NegMulAdd(p, odd, even));
    }
  }
}

// Copies one row of the padded image to its phases; past its end they are zero.
template <int kOutputs>
void split_row(const float* row, int64_t count, float* phases, int64_t phase) {
  const Tag<float> d;
  for (int64_t t = 0; t < count; t += int64_t(hn::Lanes(d))) {
    Vec<float> a[4];
    if constexpr (kOutputs == 4) {
      hn::LoadInterleaved4(d, row + 4 * t, a[0], a[1], a[2], a[3]);
    } else {
      hn::LoadInterleaved2(d, row + 2 * t, a[0], a[1]);
    }
    RIDGELINE_UNROLL
    for (int j = 0; j < kOutputs; ++j) hn::StoreU(a[j], d, phases + j * phase + t);
  }
}

// Computes v of the whole image: [point][c, row, tile]. Rows are consecutive, so that the elements
// a vector writes past the end of one are overwritten by the next.
template <int kOutputs, int kPairs>
void transform_image(const Winograd1dConv2dShape& shape, const float* x, float* row, float* v) {
  const DirectShape& s = shape.conv;
  const int64_t tiles = shape.tiles(), rows = shape.in_rows();
  const int64_t width = shape.row_elements(), phase = tiles + Winograd1dConv2dShape::kSlack;
  float* phases = row + width;
  std::fill(row, row + width, 0.0f);
  // If the width is odd, a pool ignores the last column, and its tile must not read it.
  const int64_t wanted = std::min(s.w, shape.columns() + s.kernel_w - 1 - s.pad_w);
  for (int64_t c = 0; c < s.c; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t from = r - s.pad_h;
      if (from >= 0 && from < s.h) {
        std::copy_n(x + (c * s.h + from) * s.w, wanted, row + s.pad_w);
      } else {
        std::fill_n(row + s.pad_w, wanted, 0.0f);
      }
      split_row<kOutputs>(row, tiles + (2 * kPairs + 1) / kOutputs, phases, phase);
      float* to = v + (c * rows + r) * tiles;
      if (tiles <= 8) {
        transform_row<kOutputs, kPairs>(hn::CappedTag<float, 8>(), phases, phase, tiles, to,
                                        shape.point_elements());
      } else {
        transform_row<kOutputs, kPairs>(Tag<float>(), phases, phase, tiles, to,
                                        shape.point_elements());
      }
    }
  }
}

// Computes the sums of kRows channels at one point, for kVectors vectors of tiles from v on.
template <int kRows, int kVectors>
HWY_NOINLINE void sum_point(const Winograd1dConv2dShape& shape, const float* HWY_RESTRICT u,
                            const float* v, float* sums, int64_t ld) {
  const Tag<float> d;
  const DirectShape& s = shape.conv;
  Vec<float> acc[kRows][kVectors];
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) acc[m][j] = hn::Zero(d);
  }
  for (int64_t c = 0; c < s.c; ++c) {
    accumulate<kRows, kVectors, Along::m, float>(
        s.kernel_h, u, kRows, v + c * shape.in_rows() * shape.tiles(), shape.tiles(), acc);
    u += s.kernel_h * kRows;
  }
  RIDGELINE_UNROLL
  for (int m = 0; m < kRows; ++m) {
    RIDGELINE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      hn::StoreU(acc[m][j], d, sums + m * ld + j * int64_t(hn::Lanes(d)));
    }
  }
}

template <int kRows>
void sum_points(const Winograd1dConv2dShape& shape, const float* u, const float* v, float* sums) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<float>()));
  const int64_t taps = shape.conv.c * shape.conv.kernel_h, points = shape.points();
  const int64_t vectors = (shape.rows() * shape.tiles() + lanes - 1) / lanes;
  const int64_t parts = (vectors + kSumVectors - 1) / kSumVectors, ld = shape.sum_elements();
  for (int64_t p = 0; p < points; ++p) {
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = vectors * part / parts, count = vectors * (part + 1) / parts - first;
      const auto run = [&](auto sum) {
        sum(shape, u + p * taps * kRows, v + p * shape.point_elements() + first * lanes,
            sums + p * ld + first * lanes, points * ld);
      };
      if (count == 1) {
        run(sum_point<kRows, 1>);
      } else if (count == 2) {
        run(sum_point<kRows, 2>);
      } else if (count == 3) {
        run(sum_point<kRows, std::min(3, kSumVectors)>);
      } else {
        run(sum_point<kRows, kSumVectors>);
      }
    }
  }
}

template <int kRows>
void sum_block(int64_t rows, const Winograd1dConv2dShape& shape, const float* u, const float* v,
               float* sums) {
  if (rows == kRows) return sum_points<kRows>(shape, u, v, sums);
  if constexpr (kRows > 1) sum_block<kRows - 1>(rows, shape, u, v, sums);
}

// Computes the outputs of the tiles from q on of a channel, from its sums at all points.
template <int kOutputs, int kPairs, class D, class V = hn::Vec<D>>
HWY_INLINE void outputs_at(D d, const float* sums, int64_t ld, V (&y)[kOutputs]) {
  RIDGELINE_UNROLL
  for (int j = 0; j < kOutputs; ++j) y[j] = hn::Zero(d);
  y[0] = hn::LoadU(d, sums);
  y[kOutputs - 1] = hn::LoadU(d, sums + (2 * kPairs + 1) * ld);
  RIDGELINE_UNROLL
  for (int i = 0; i < kPairs; ++i) {
    const V plus = hn::LoadU(d, sums + (1 + 2 * i) * ld);
    const V minus = hn::LoadU(d, sums + (2 + 2 * i) * ld);
    const V even = hn::Add(plus, minus), odd = hn::Sub(plus, minus);
    const double p = kWinograd1dMatrix<kPairs>.points[i];
    y[0] = hn::Add(y[0], even);
    y[1] = hn::MulAdd(hn::Set(d, float(p)), odd, y[1]);
    if constexpr (kOutputs == 4) {
      y[2] = hn::MulAdd(hn::Set(d, float(p * p)), even, y[2]);
      y[3] = hn::MulAdd(hn::Set(d, float(p * p * p)), odd, y[3]);
    }
  }
}

// Computes a channel's outputs, with bias and activation. The pool's maxima of neighbours in a row
// are those of a tile's outputs; `sums` of the first two points then hold them.
template <int kOutputs, int kPairs>
void finish_channel(const Winograd1dConv2dArgs& args, float bias, float* sums, float* plane,
                    float* y) {
  const Tag<float> d;
  const Winograd1dConv2dShape& shape = args.shape;
  const int64_t lanes = int64_t(hn::Lanes(d)), tiles = shape.tiles(), ld = shape.sum_elements();
  const int64_t columns = shape.columns(), rows = shape.rows();
  Vec<float> out[kOutputs];
  if (!shape.conv.pooled) {
    for (int64_t r = 0; r < rows; ++r) {  // the next row overwrites what is written past this one
      for (int64_t t = 0; t < tiles; t += lanes) {
        outputs_at<kOutputs, kPairs>(d, sums + r * tiles + t, ld, out);
        float* to = plane + r * columns + kOutputs * t;
        if constexpr (kOutputs == 4) {
          hn::StoreInterleaved4(out[0], out[1], out[2], out[3], d, to);
        } else {
          hn::StoreInterleaved2(out[0], out[1], d, to);
        }
      }
    }
    return finish_row(args.act, bias, plane, rows * columns, y);
  }
  for (int64_t q = 0; q < rows * tiles; q += lanes) {
    outputs_at<kOutputs, kPairs>(d, sums + q, ld, out);
    hn::StoreU(nan_max(d, out[0], out[1]), d, sums + q);
    if constexpr (kOutputs == 4) hn::StoreU(nan_max(d, out[2], out[3]), d, sums + ld + q);
  }
  const auto pool = [&](auto narrow) HWY_ATTR {
    for (int64_t r = 0; r < rows; r += 2) {
      for (int64_t t = 0; t < tiles; t += int64_t(hn::Lanes(narrow))) {
        const float* upper = sums + r * tiles + t;
        const float* lower = upper + tiles;
        const auto left = nan_max(narrow, hn::LoadU(narrow, upper), hn::LoadU(narrow, lower));
        float* to = plane + r / 2 * (columns / 2) + kOutputs / 2 * t;
        if constexpr (kOutputs == 4) {
          const auto right =
              nan_max(narrow, hn::LoadU(narrow, upper + ld), hn::LoadU(narrow, lower + ld));
          hn::StoreInterleaved2(left, right, narrow, to);
        } else {
          hn::StoreU(left, narrow, to);
        }
      }
    }
  };
  if (tiles <= 8) {
    pool(hn::CappedTag<float, 8>());
  } else {
    pool(d);
  }
  finish_row(args.act, bias, plane, shape.results(), y);
}

template <int kOutputs, int kPairs>
void convolve_image(const Winograd1dConv2dArgs& args, const float* x, float* y, float* scratch) {
  const Winograd1dConv2dShape& shape = args.shape;
  const int64_t points = shape.points(), k = shape.conv.k;
  float* v = scratch;
  float* sums = v + points * shape.point_elements();
  float* row = sums + kDirectBlock * points * shape.sum_elements();
  float* plane = row;  // the row is no longer needed when the plane is written
  transform_image<kOutputs, kPairs>(shape, x, row, v);
  const float* u = args.filters;
  for (int64_t block = 0; block < direct_blocks(k); ++block) {
    const auto [begin, end] = direct_block(k, block);
    sum_block<int(kDirectBlock)>(end - begin, shape, u, v, sums);
    u += (end - begin) * shape.conv.c * shape.conv.kernel_h * points;
    for (int64_t o = begin; o < end; ++o) {
      finish_channel<kOutputs, kPairs>(args, args.bias != nullptr ? args.bias[o] : 0.0f,
                                       sums + (o - begin) * points * shape.sum_elements(), plane,
                                       y + o * shape.results());
    }
  }
}

// Calls f.operator()<outputs, pairs>().
template <typename F>
void with_sizes(const Winograd1dConv2dShape& shape, F f) {
  const int64_t taps = shape.conv.kernel_w;
  if (shape.outputs == 2) {
    return taps == 5 ? f.template operator()<2, 2>() : f.template operator()<2, 3>();
  }
  switch (taps) {
    case 3:
      return f.template operator()<4, 2>();
    case 5:
      return f.template operator()<4, 3>();
    default:
      return f.template operator()<4, 4>();
  }
}

void filters(const Winograd1dConv2dShape& shape, const float* w, float* u, Range blocks) {
  with_sizes(shape, [&]<int kOutputs, int kPairs>() {
    filter_blocks<kOutputs, kPairs>(shape, w, u, blocks);
  });
}
void image(const Winograd1dConv2dArgs& args, const float* x, float* y, float* scratch) {
  with_sizes(args.shape, [&]<int kOutputs, int kPairs>() {
    convolve_image<kOutputs, kPairs>(args, x, y, scratch);
  });
}

constexpr Winograd1dConv2dFunctions kWinograd1dConv2d{filters, image};

}  // namespace winograd1d_conv2d

const Winograd1dConv2dFunctions* winograd1d_conv2d_table() {
  return &winograd1d_conv2d::kWinograd1dConv2d;
}

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

HWY_EXPORT(winograd1d_conv2d_table);
const Winograd1dConv2dFunctions& winograd1d_conv2d_functions() {
  return *HWY_DYNAMIC_DISPATCH(winograd1d_conv2d_table)();
}

size_t Winograd1dConv2dShape::thread_elements() const {
  const int64_t row = row_elements() + outputs * (tiles() + kSlack);
  const int64_t plane = results() + kSlack + outputs * kSlack;
  return size_t(points() * point_elements() + kDirectBlock * points() * sum_elements() +
                std::max(row, plane));
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
