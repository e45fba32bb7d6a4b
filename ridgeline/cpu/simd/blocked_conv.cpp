#include "ridgeline/cpu/simd/blocked_conv.h"

#include <algorithm>
#include <array>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/blocked_conv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/conv-inl.h"

// What the loops of every instruction set share.
#ifndef RIDGELINE_CPU_SIMD_BLOCKED_CONV_ONCE
#define RIDGELINE_CPU_SIMD_BLOCKED_CONV_ONCE
namespace ridgeline::cpu::simd {

// Outputs of a strip by one or two vectors of channels.
struct BlockedStripArgs {
  const float* source;  // of the first output
  bool plain;
  int64_t channels, plane;  // of the source
  const BlockedTap* taps;
  int64_t tap_count, taps_all;
  const float *weights, *bias;  // rows of as many vectors as are computed
  int vectors;
  int64_t last_lanes;  // channels in the last vector; the others are padding
  SimdActivation act;
  float* y;
  int64_t y_step, y_plane, count;
};

// Sums over an image's pixels of dy by the source, for one or two vectors of dy's channels.
struct BlockedProductArgs {
  const float *source, *dy;
  int64_t source_step, source_row, dy_plane;
  int64_t h, w;  // of dy
  int vectors;
};

struct BlockedConvFunctions {
  int64_t (*lanes)();
  void (*strip)(const BlockedStripArgs&);
  // Adds to sums[row][vectors] of `count` rows, whose sources begin at these offsets.
  void (*products)(const BlockedProductArgs&, const int64_t* offsets, int64_t count, float* sums);
  void (*add_pixels)(const float* dy, int64_t pixels, float* sums);
};

constexpr int kBlockedVectors = 2;  // computed together

}  // namespace ridgeline::cpu::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr Tag<float> kFloats;
constexpr int64_t kLanes = int64_t(hn::MaxLanes(kFloats));

int64_t conv_lanes() { return int64_t(hn::Lanes(kFloats)); }

// Pixels of a tile. With 32 registers, 14 by 2 sums leave four: a row of 14 or 28 pixels has whole
// tiles.
constexpr int most_pixels(int vectors) {
  if (HWY_TARGET == HWY_SCALAR) return 2;
  return kManyRegisters ? 14 : vectors == 2 ? 6 : 12;
}

// Applies an activation that is not applied in registers: inlined for every sum of a tile, the code
// of all activations would be a fifth of the program.
HWY_NOINLINE void finish(const BlockedStripArgs& g, float* y, int pixels) {
  const auto live = hn::FirstN(kFloats, size_t(g.last_lanes));
  for (int p = 0; p < pixels; ++p) {
    for (int v = 0; v < g.vectors; ++v) {
      float* at = y + p * g.y_step + v * g.y_plane;
      const Vec<float> value = activate(kFloats, g.act, hn::LoadU(kFloats, at));
      hn::StoreU(v + 1 == g.vectors ? hn::IfThenElseZero(live, value) : value, kFloats, at);
    }
  }
}

template <int kPixels, int kVectors, bool kPlain>
HWY_NOINLINE void sum_tile(const BlockedStripArgs& g, int64_t first) {
  constexpr int64_t kStep = kPlain ? 1 : kLanes;
  Vec<float> acc[kPixels][kVectors];
  RIDGELINE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const Vec<float> bias = hn::LoadU(kFloats, g.bias + v * kLanes);
    RIDGELINE_UNROLL
    for (int p = 0; p < kPixels; ++p) acc[p][v] = bias;
  }
  const float* source = g.source + first * kStep;
  for (int64_t c = 0; c < g.channels; c += kStep, source += g.plane) {
    const int64_t here = std::min(kStep, g.channels - c);
    const float* weights = g.weights + c * g.taps_all * kVectors * kLanes;
    for (int64_t t = 0; t < g.tap_count; ++t) {
      const float* HWY_RESTRICT x = source + g.taps[t].offset;
      const float* HWY_RESTRICT w = weights + g.taps[t].index * here * kVectors * kLanes;
      for (int64_t i = 0; i < here; ++i, ++x, w += kVectors * kLanes) {
        Vec<float> row[kVectors];
        RIDGELINE_UNROLL
        for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(kFloats, w + v * kLanes);
        RIDGELINE_UNROLL
        for (int p = 0; p < kPixels; ++p) {
          const Vec<float> value = hn::Set(kFloats, x[p * kStep]);
          RIDGELINE_UNROLL
          for (int v = 0; v < kVectors; ++v) acc[p][v] = hn::MulAdd(value, row[v], acc[p][v]);
        }
      }
    }
  }
  if (g.act == ActivationKind::relu) {
    RIDGELINE_UNROLL
    for (int p = 0; p < kPixels; ++p) {
      RIDGELINE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[p][v] = hn::Max(hn::Zero(kFloats), acc[p][v]);
    }
  }
  const auto live = hn::FirstN(kFloats, size_t(g.last_lanes));
  float* y = g.y + first * g.y_step;
  RIDGELINE_UNROLL
  for (int p = 0; p < kPixels; ++p) {
    RIDGELINE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const bool last = v + 1 == kVectors;
      hn::StoreU(last ? hn::IfThenElseZero(live, acc[p][v]) : acc[p][v], kFloats,
                 y + p * g.y_step + v * g.y_plane);
    }
  }
  if (g.act != ActivationKind::none && g.act != ActivationKind::relu) finish(g, y, kPixels);
}

using SumTile = void (*)(const BlockedStripArgs&, int64_t);
template <int kVectors, bool kPlain, int... kPixels>
constexpr auto sum_tiles(std::integer_sequence<int, kPixels...>) {
  return std::array<SumTile, sizeof...(kPixels)>{sum_tile<kPixels + 1, kVectors, kPlain>...};
}

template <int kVectors, bool kPlain>
void strip_of(const BlockedStripArgs& g) {
  constexpr int kMost = most_pixels(kVectors);
  static constexpr auto kTiles =
      sum_tiles<kVectors, kPlain>(std::make_integer_sequence<int, kMost>());
  const int64_t tiles = (g.count + kMost - 1) / kMost;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = g.count * tile / tiles, end = g.count * (tile + 1) / tiles;
    kTiles[size_t(end - first - 1)](g, first);
  }
}

void strip(const BlockedStripArgs& g) {
  if (g.vectors == 2) {
    g.plain ? strip_of<2, true>(g) : strip_of<2, false>(g);
  } else {
    g.plain ? strip_of<1, true>(g) : strip_of<1, false>(g);
  }
}

constexpr int kMostRows = kManyRegisters ? 8 : HWY_TARGET == HWY_SCALAR ? 1 : 4;

template <int kRows, int kVectors>
HWY_NOINLINE void add_products(const BlockedProductArgs& g, const int64_t* offsets, float* sums) {
  Vec<float> acc[kRows][kVectors];
  const float* x[kRows];
  RIDGELINE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    x[r] = g.source + offsets[r];
    RIDGELINE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = hn::LoadU(kFloats, sums + (r * kVectors + v) * kLanes);
    }
  }
  const float* dy = g.dy;
  for (int64_t p = 0; p < g.h; ++p) {
    int64_t at = p * g.source_row;
    for (int64_t q = 0; q < g.w; ++q, at += g.source_step, dy += kLanes) {
      Vec<float> slope[kVectors];
      RIDGELINE_UNROLL
      for (int v = 0; v < kVectors; ++v) slope[v] = hn::LoadU(kFloats, dy + v * g.dy_plane);
      RIDGELINE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Vec<float> value = hn::Set(kFloats, x[r][at]);
        RIDGELINE_UNROLL
        for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(value, slope[v], acc[r][v]);
      }
    }
  }
  RIDGELINE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    RIDGELINE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(acc[r][v], kFloats, sums + (r * kVectors + v) * kLanes);
    }
  }
}

using AddProducts = void (*)(const BlockedProductArgs&, const int64_t*, float*);
template <int kVectors, int... kRows>
constexpr auto product_tiles(std::integer_sequence<int, kRows...>) {
  return std::array<AddProducts, sizeof...(kRows)>{add_products<kRows + 1, kVectors>...};
}

template <int kVectors>
void products_of(const BlockedProductArgs& g, const int64_t* offsets, int64_t count, float* sums) {
  static constexpr auto kTiles =
      product_tiles<kVectors>(std::make_integer_sequence<int, kMostRows>());
  const int64_t tiles = (count + kMostRows - 1) / kMostRows;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = count * tile / tiles, end = count * (tile + 1) / tiles;
    kTiles[size_t(end - first - 1)](g, offsets + first, sums + first * kVectors * kLanes);
  }
}

void products(const BlockedProductArgs& g, const int64_t* offsets, int64_t count, float* sums) {
  g.vectors == 2 ? products_of<2>(g, offsets, count, sums)
                 : products_of<1>(g, offsets, count, sums);
}

void add_pixels(const float* dy, int64_t pixels, float* sums) {
  Vec<float> sum = hn::LoadU(kFloats, sums), other = hn::Zero(kFloats);
  int64_t p = 0;
  for (; p + 2 <= pixels; p += 2) {
    sum = hn::Add(sum, hn::LoadU(kFloats, dy + p * kLanes));
    other = hn::Add(other, hn::LoadU(kFloats, dy + (p + 1) * kLanes));
  }
  if (p < pixels) sum = hn::Add(sum, hn::LoadU(kFloats, dy + p * kLanes));
  hn::StoreU(hn::Add(sum, other), kFloats, sums);
}

constexpr BlockedConvFunctions kBlockedConv{conv_lanes, strip, products, add_pixels};
const BlockedConvFunctions* blocked_conv_table() { return &kBlockedConv; }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {
namespace {

HWY_EXPORT(blocked_conv_table);
const BlockedConvFunctions& functions() { return *HWY_DYNAMIC_DISPATCH(blocked_conv_table)(); }

// The groups of vectors over the channels of a result that are computed together.
struct Groups {
  int64_t channels, lanes = functions().lanes();

  int64_t vectors() const { return (channels + lanes - 1) / lanes; }
  int64_t padded() const { return vectors() * lanes; }
  // Calls f(first vector, vectors, channels in the last one).
  template <typename F>
  void each(F f) const {
    for (int64_t v = 0; v < vectors(); v += kBlockedVectors) {
      const int64_t end = std::min<int64_t>(v + kBlockedVectors, vectors());
      f(v, int(end - v), std::min(lanes, channels - (end - 1) * lanes));
    }
  }
};

// The source of a convolution, whose taps read at(output * stride + tap * dilation).
PaddedImage padded_input(const Conv2dShape& shape, bool plain) {
  const Slide &down = shape.window.h, &right = shape.window.w;
  const Image out = shape.out();
  const int64_t rows = std::max(down.pad + shape.in.h, (out.h - 1) * down.stride + down.reach());
  const int64_t columns =
      std::max(right.pad + shape.in.w, (out.w - 1) * right.stride + right.reach());
  return {.image = shape.in,
          .block = plain ? 1 : functions().lanes(),
          .top = down.pad,
          .left = right.pad,
          .rows = rows,
          .per_remainder = (columns + right.stride - 1) / right.stride,
          .stride = right.stride};
}

// The taps of one axis that reach the inputs of one remainder, for the gradient of the input:
// input i is at remainder (i + pad) % stride, and tap k reads output (i + pad) / stride - back.
struct ReachingTap {
  int64_t k, back;
};
std::vector<ReachingTap> reaching(const Slide& slide, int64_t remainder) {
  std::vector<ReachingTap> taps;
  for (int64_t k = 0; k < slide.kernel; ++k) {
    const int64_t at = k * slide.dilation;
    if (at % slide.stride == remainder) taps.push_back({k, at / slide.stride});
  }
  return taps;
}

}  // namespace

int64_t blocked_conv_lanes() { return functions().lanes(); }

void PaddedImage::load(const float* x, float* scratch) const {
  for (int64_t b = 0; b < blocks(); ++b) {
    for (int64_t r = 0; r < image.h; ++r, x += image.w * block) {
      float* to = scratch + b * plane();
      if (stride == 1) {
        std::copy_n(x, image.w * block, to + at(top + r, left));
        continue;
      }
      for (int64_t q = 0; q < image.w; ++q) {
        std::copy_n(x + q * block, block, to + at(top + r, left + q));
      }
    }
  }
}

BlockedSums BlockedSums::forward(const Conv2dShape& shape, bool plain) {
  const Slide &down = shape.window.h, &right = shape.window.w;
  const int64_t area = down.kernel * right.kernel, lanes = functions().lanes();
  BlockedSums sums;
  sums.source_ = padded_input(shape, plain);
  sums.out_ = shape.out();
  sums.taps_all_ = area;
  sums.out_stride_ = shape.in.c * area;
  sums.source_stride_ = area;
  for (int64_t u = 0; u < down.kernel; ++u) {
    for (int64_t v = 0; v < right.kernel; ++v) {
      sums.taps_.push_back(
          {sums.source_.at(u * down.dilation, v * right.dilation), u * right.kernel + v});
    }
  }
  for (int64_t p = 0; p < sums.out_.h; ++p) {
    sums.strips_.push_back({sums.source_.at(p * down.stride, 0), p * sums.out_.w * lanes, 0, area,
                            sums.out_.w, lanes});
  }
  return sums;
}

BlockedSums BlockedSums::input_grad(const Conv2dShape& shape) {
  const Slide &down = shape.window.h, &right = shape.window.w;
  const int64_t lanes = functions().lanes();
  const Image dy = shape.out();
  BlockedSums sums;
  sums.out_ = shape.in;
  sums.taps_all_ = down.kernel * right.kernel;
  sums.out_stride_ = sums.taps_all_;
  sums.source_stride_ = shape.in.c * sums.taps_all_;
  const int64_t top = (down.reach() - 1) / down.stride, left = (right.reach() - 1) / right.stride;
  const auto last = [](const Slide& slide, int64_t extent) {
    return (extent - 1 + slide.pad) / slide.stride;
  };
  sums.source_ = {.image = dy,
                  .block = lanes,
                  .top = top,
                  .left = left,
                  .rows = top + std::max(dy.h, last(down, shape.in.h) + 1),
                  .per_remainder = left + std::max(dy.w, last(right, shape.in.w) + 1)};
  for (int64_t r = 0; r < shape.in.h; ++r) {
    const auto us = reaching(down, (r + down.pad) % down.stride);
    for (int64_t s = 0; s < std::min(right.stride, shape.in.w); ++s) {
      BlockedStrip strip{};
      strip.first_tap = int64_t(sums.taps_.size());
      for (const ReachingTap& u : us) {
        for (const ReachingTap& v : reaching(right, (s + right.pad) % right.stride)) {
          sums.taps_.push_back({-sums.source_.at(u.back, v.back), u.k * right.kernel + v.k});
        }
      }
      strip.taps = int64_t(sums.taps_.size()) - strip.first_tap;
      strip.source = sums.source_.at((r + down.pad) / down.stride + top,
                                     (s + right.pad) / right.stride + left);
      strip.y = (r * shape.in.w + s) * lanes;
      strip.step = right.stride * lanes;
      strip.count = (shape.in.w - s + right.stride - 1) / right.stride;
      sums.strips_.push_back(strip);
    }
  }
  return sums;
}

int64_t BlockedSums::weight_floats() const { return Groups{out_.c}.padded() * (1 + weight_rows()); }

// The biases come first, then rows [source block][tap][channel of the block] of each group of
// vectors.
void BlockedSums::pack(const float* w, const float* bias, Range rows, float* packed) const {
  const Groups groups{out_.c};
  if (rows.begin == 0 && rows.end > 0) {  // an empty range may begin there, too
    std::fill_n(packed, groups.padded(), 0.0f);
    if (bias != nullptr) std::copy_n(bias, out_.c, packed);
  }
  groups.each([&](int64_t first, int vectors, int64_t) {
    const int64_t width = vectors * groups.lanes, o = first * groups.lanes;
    const int64_t live = std::min(width, out_.c - o);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t block = row / (source_.block * taps_all_),
                    in_block = row - block * source_.block * taps_all_;
      const int64_t c = block * source_.block;
      const int64_t here = std::min(source_.block, source_.image.c - c);
      const float* from =
          w + o * out_stride_ + (c + in_block % here) * source_stride_ + in_block / here;
      float* to = packed + groups.padded() + o * weight_rows() + row * width;
      for (int64_t k = 0; k < live; ++k) to[k] = from[k * out_stride_];
      std::fill(to + live, to + width, 0.0f);
    }
  });
}

void BlockedSums::run(const float* scratch, const float* packed, SimdActivation act,
                      float* y) const {
  const Groups groups{out_.c};
  BlockedStripArgs args{};
  args.plain = source_.block == 1;
  args.channels = source_.image.c;
  args.plane = source_.plane();
  args.taps_all = taps_all_;
  args.act = act;
  args.y_plane = out_.pixels() * groups.lanes;
  groups.each([&](int64_t first, int vectors, int64_t last_lanes) {
    args.bias = packed + first * groups.lanes;
    args.weights = packed + groups.padded() + first * groups.lanes * weight_rows();
    args.vectors = vectors;
    args.last_lanes = last_lanes;
    for (const BlockedStrip& each : strips_) {
      args.source = scratch + each.source;
      args.taps = taps_.data() + each.first_tap;
      args.tap_count = each.taps;
      args.y = y + first * args.y_plane + each.y;
      args.y_step = each.step;
      args.count = each.count;
      functions().strip(args);
    }
  });
}

BlockedWeightGrad::BlockedWeightGrad(const Conv2dShape& shape, bool plain)
    : shape_(shape), source_(padded_input(shape, plain)) {
  const Slide &down = shape.window.h, &right = shape.window.w;
  for (int64_t c = 0; c < shape.in.c; c += source_.block) {
    for (int64_t u = 0; u < down.kernel; ++u) {
      for (int64_t v = 0; v < right.kernel; ++v) {
        for (int64_t i = 0; i < std::min(source_.block, shape.in.c - c); ++i) {
          offsets_.push_back(c / source_.block * source_.plane() +
                             source_.at(u * down.dilation, v * right.dilation) + i);
        }
      }
    }
  }
}

int64_t BlockedWeightGrad::sum_floats() const { return Groups{shape_.k}.padded() * (1 + rows()); }

void BlockedWeightGrad::add(const float* scratch, const float* dy, float* sums) const {
  const Groups groups{shape_.k};
  const Image out = shape_.out();
  groups.each([&](int64_t first, int vectors, int64_t) {
    const BlockedProductArgs args{scratch,
                                  dy + first * out.pixels() * groups.lanes,
                                  source_.block,
                                  source_.row() * shape_.window.h.stride,
                                  out.pixels() * groups.lanes,
                                  out.h,
                                  out.w,
                                  vectors};
    functions().products(args, offsets_.data(), rows(),
                         sums + groups.padded() + first * groups.lanes * rows());
    for (int64_t v = 0; v < vectors; ++v) {
      functions().add_pixels(args.dy + v * args.dy_plane, out.pixels(),
                             sums + (first + v) * groups.lanes);
    }
  });
}

void BlockedWeightGrad::finish(const std::vector<float*>& sums, Range rows, float* dw,
                               float* db) const {
  const Groups groups{shape_.k};
  const auto total = [&](int64_t at) {
    float sum = 0;
    for (const float* each : sums) sum += each[at];
    return sum;
  };
  if (rows.begin == 0 && rows.end > 0 && db != nullptr) {
    for (int64_t o = 0; o < shape_.k; ++o) db[o] = total(o);
  }
  const int64_t area = shape_.window.h.kernel * shape_.window.w.kernel, block = source_.block;
  groups.each([&](int64_t first, int vectors, int64_t) {
    const int64_t width = vectors * groups.lanes, o = first * groups.lanes;
    const int64_t live = std::min(width, shape_.k - o);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t c = row / (block * area) * block, in_block = row - c * area;
      const int64_t here = std::min(block, shape_.in.c - c);
      float* to = dw + (o * shape_.in.c + c + in_block % here) * area + in_block / here;
      const int64_t from = groups.padded() + o * this->rows() + row * width;
      for (int64_t k = 0; k < live; ++k) to[k * shape_.in.c * area] = total(from + k);
    }
  });
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
