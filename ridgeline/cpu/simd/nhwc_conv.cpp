#include "ridgeline/cpu/simd/nhwc_conv.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/nhwc_conv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ridgeline/cpu/simd/conv-inl.h"

// The arguments of the functions below, which are compiled once per instruction set.
#ifndef RIDGELINE_CPU_SIMD_NHWC_CONV_ARGS
#define RIDGELINE_CPU_SIMD_NHWC_CONV_ARGS
namespace ridgeline::cpu::simd {
namespace {

struct NhwcArgs {
  const Conv2dShape& shape;
  const int64_t* runs;
  int64_t run_count, run;
  const float *w, *bias;
  const NhwcImages &x, &y;
  const NhwcEpilogue& epilogue;
  int64_t images;
};

struct NhwcFunctions {
  int64_t (*lanes)();
  int64_t panel;                      // most vectors of a panel
  int64_t (*tile)(int64_t channels);  // pixels of a tile
  void (*convolve)(const NhwcArgs& args, Range tiles, Range panels);
  void (*depthwise)(const NhwcArgs& args, Range rows);
  void (*pool)(const NhwcPool& pool, const NhwcImages& x, const NhwcImages& y, Range rows);
};

// Output channels in vectors, and vectors in panels that are as even as they can be.
struct NhwcPanels {
  int64_t vectors, count;

  NhwcPanels(int64_t channels, int64_t lanes, int64_t most)
      : vectors((channels + lanes - 1) / lanes), count((vectors + most - 1) / most) {}
  Range at(int64_t panel) const { return {vectors * panel / count, vectors * (panel + 1) / count}; }
};

}  // namespace
}  // namespace ridgeline::cpu::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace nhwc_conv {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using V = Vec<float>;

// Pixels by vectors of channels whose sums are in registers: 6 x 4 or, where there are fewer
// channels, 8 x 3 of 32; 6 x 2 of 16.
constexpr int kVectors = kManyRegisters ? 4 : 2;
constexpr int kPixels = kManyRegisters ? 8 : 6;
constexpr int pixels_of(int64_t vectors) { return vectors > 3 ? 6 : kPixels; }

int64_t lanes() { return int64_t(hn::Lanes(Tag<float>())); }
int64_t tile(int64_t channels) { return pixels_of((channels + lanes() - 1) / lanes()); }

HWY_INLINE void store(V value, float* y, int64_t room) {
  const Tag<float> d;
  if (room >= int64_t(hn::Lanes(d))) {
    hn::StoreU(value, d, y);
  } else {
    hn::BlendedStore(value, hn::FirstN(d, size_t(room)), d, y);
  }
}

// Finishes sums that lie in y: what is not done in registers.
HWY_NOINLINE void finish(const NhwcEpilogue& epilogue, float* const* y,
                         const float* const* residual, int64_t pixels, int64_t begin, int64_t end) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t c = begin; c < end; c += lanes) {
      // Other threads may be writing what lies past the end.
      const V sums = end - c >= lanes ? hn::LoadU(d, y[p] + c)
                                      : hn::MaskedLoad(hn::FirstN(d, size_t(end - c)), d, y[p] + c);
      V value = activate(d, epilogue.act, sums);
      if (residual != nullptr) value = hn::Add(value, hn::LoadU(d, residual[p] + c));
      store(activate(d, epilogue.after, value), y[p] + c, end - c);
    }
  }
}

// The sums of kMany pixels by kWide vectors over all taps.
template <int kMany, int kWide>
HWY_NOINLINE void sum_tile(const NhwcArgs& g, const float* const* pixels,
                           const float* HWY_RESTRICT w, const float* bias, bool relu,
                           float* const* y, int64_t room) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  V acc[kMany][kWide];
  RIDGELINE_UNROLL
  for (int v = 0; v < kWide; ++v) {
    const V start = hn::LoadU(d, bias + v * lanes);
    RIDGELINE_UNROLL
    for (int p = 0; p < kMany; ++p) acc[p][v] = start;
  }
  for (int64_t r = 0; r < g.run_count; ++r) {
    const float* x[kMany];
    RIDGELINE_UNROLL
    for (int p = 0; p < kMany; ++p) x[p] = pixels[p] + g.runs[r];
    const auto add = [&](int64_t i) HWY_ATTR {
      V row[kWide];
      RIDGELINE_UNROLL
      for (int v = 0; v < kWide; ++v) row[v] = hn::LoadU(d, w + v * lanes);
      w += kWide * lanes;
      RIDGELINE_UNROLL
      for (int p = 0; p < kMany; ++p) {
        const V value = hn::Set(d, x[p][i]);
        RIDGELINE_UNROLL
        for (int v = 0; v < kWide; ++v) acc[p][v] = hn::MulAdd(value, row[v], acc[p][v]);
      }
    };
    int64_t i = 0;
    for (; i + 2 <= g.run; i += 2) {
      add(i);
      add(i + 1);
    }
    if (i < g.run) add(i);
  }
  RIDGELINE_UNROLL
  for (int p = 0; p < kMany; ++p) {
    RIDGELINE_UNROLL
    for (int v = 0; v < kWide; ++v) {
      const V value = relu ? hn::Max(hn::Zero(d), acc[p][v]) : acc[p][v];
      store(value, y[p] + v * lanes, room - v * lanes);
    }
  }
}

template <int kWide, int kMany = pixels_of(kWide)>
void sum(int64_t many, const NhwcArgs& g, const float* const* pixels, const float* w,
         const float* bias, bool relu, float* const* y, int64_t room) {
  if (many >= kMany) return sum_tile<kMany, kWide>(g, pixels, w, bias, relu, y, room);
  if constexpr (kMany > 1) sum<kWide, kMany - 1>(many, g, pixels, w, bias, relu, y, room);
}
using Sum = decltype(&sum<1>);
constexpr Sum kSums[] = {sum<1>, sum<2>, sum<kVectors == 4 ? 3 : 2>, sum<kVectors>};

void convolve(const NhwcArgs& g, Range tiles, Range panels) {
  const Image out = g.shape.out();
  const Slide &down = g.shape.window.h, &right = g.shape.window.w;
  const NhwcEpilogue& e = g.epilogue;
  const bool simple = e.residual == nullptr && e.after == ActivationKind::none &&
                      (e.act == ActivationKind::none || e.act == ActivationKind::relu);
  const bool relu = simple && e.act == ActivationKind::relu;
  const int64_t taps = g.run_count * g.run;
  const int64_t pixels = g.images * out.pixels(), most = tile(g.shape.k);
  const int64_t all = (pixels + most - 1) / most;
  const NhwcPanels split(g.shape.k, lanes(), kVectors);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const Range vectors = split.at(panel);
    const int64_t first = vectors.begin * lanes();
    const int64_t room = std::min(g.y.pixel, vectors.end * lanes()) - first;
    const Sum sum_pixels = kSums[vectors.end - vectors.begin - 1];
    for (int64_t at = tiles.begin; at < tiles.end; ++at) {
      const int64_t begin = pixels * at / all, end = pixels * (at + 1) / all;
      const float *x[kPixels], *residual[kPixels];
      float* y[kPixels];
      int64_t column = begin % out.w, row = begin / out.w % out.h, image = begin / out.pixels();
      for (int64_t p = 0; p < end - begin; ++p) {
        x[p] = g.x.at(image, row * down.stride, column * right.stride);
        y[p] = g.y.at(image, row, column) + first;
        if (e.residual != nullptr) residual[p] = e.residual->at(image, row, column) + first;
        if (++column == out.w) {
          column = 0;
          if (++row == out.h) {
            row = 0;
            ++image;
          }
        }
      }
      sum_pixels(end - begin, g, x, g.w + first * taps, g.bias + first, relu, y, room);
      if (!simple) finish(e, y, e.residual != nullptr ? residual : nullptr, end - begin, 0, room);
    }
  }
}

// kMany neighbouring outputs of a row, one vector of channels. kStride above 0: taps are three in a
// row, and each input is loaded once for all outputs that it meets; 0: any other window.
template <int kMany, int kStride>
HWY_INLINE void depthwise_pixels(const NhwcArgs& g, const float* x, const float* w, V start,
                                 bool relu, float* y, int64_t room) {
  const Tag<float> d;
  const Window& window = g.shape.window;
  const int64_t step = window.w.stride * g.x.pixel, next = nhwc_pixel(g.shape.k);
  V acc[kMany];
  RIDGELINE_UNROLL
  for (int p = 0; p < kMany; ++p) acc[p] = start;
  for (int64_t u = 0; u < window.h.kernel; ++u) {
    const float* row = x + u * window.h.dilation * g.x.row;
    if constexpr (kStride > 0) {
      V factors[3];
      RIDGELINE_UNROLL
      for (int v = 0; v < 3; ++v) factors[v] = hn::LoadU(d, w + v * next);
      w += 3 * next;
      RIDGELINE_UNROLL
      for (int i = 0; i < (kMany - 1) * kStride + 3; ++i) {
        const V value = hn::LoadU(d, row + i * g.x.pixel);
        RIDGELINE_UNROLL
        for (int v = 0; v < 3; ++v) {
          const int p = (i - v) / kStride;
          if (i >= v && (i - v) % kStride == 0 && p < kMany) {
            acc[p] = hn::MulAdd(value, factors[v], acc[p]);
          }
        }
      }
      continue;
    }
    for (int64_t v = 0; v < window.w.kernel; ++v, w += next) {
      const V factor = hn::LoadU(d, w);
      RIDGELINE_UNROLL
      for (int p = 0; p < kMany; ++p) {
        const float* tap = row + v * window.w.dilation * g.x.pixel + p * step;
        acc[p] = hn::MulAdd(hn::LoadU(d, tap), factor, acc[p]);
      }
    }
  }
  RIDGELINE_UNROLL
  for (int p = 0; p < kMany; ++p) {
    store(relu ? hn::Max(hn::Zero(d), acc[p]) : acc[p], y + p * g.y.pixel, room);
  }
}

// Rows of outputs, those of all images counted through.
void depthwise(const NhwcArgs& g, Range rows) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const Image out = g.shape.out();
  const Slide &down = g.shape.window.h, &right = g.shape.window.w;
  const NhwcEpilogue& e = g.epilogue;
  const bool simple = e.residual == nullptr && e.after == ActivationKind::none &&
                      (e.act == ActivationKind::none || e.act == ActivationKind::relu);
  const bool relu = simple && e.act == ActivationKind::relu;
  const bool three = right.kernel == 3 && right.dilation == 1 && right.stride <= 2;
  const int64_t stride = three ? right.stride : 0;
  for (int64_t at = rows.begin; at < rows.end; ++at) {
    const int64_t image = at / out.h, row = at % out.h;
    for (int64_t c = 0; c < g.shape.k; c += lanes) {
      const V start = hn::LoadU(d, g.bias + c);
      const int64_t room = g.y.pixel - c;
      int64_t column = 0;
      const auto run = [&]<int kMany, int kStride>() HWY_ATTR {
        for (; column + kMany <= out.w; column += kMany) {
          depthwise_pixels<kMany, kStride>(
              g, g.x.at(image, row * down.stride, column * right.stride) + g.runs[0] + c, g.w + c,
              start, relu, g.y.at(image, row, column) + c, room);
        }
      };
      if (stride == 1) run.template operator()<8, 1>();
      if (stride == 1) run.template operator()<4, 1>();
      if (stride == 2) run.template operator()<4, 2>();
      if (stride == 0) run.template operator()<8, 0>();
      run.template operator()<1, 0>();
    }
    for (int64_t column = 0; !simple && column < out.w; ++column) {
      float* y = g.y.at(image, row, column);
      const float* residual = e.residual != nullptr ? e.residual->at(image, row, column) : nullptr;
      finish(e, &y, residual != nullptr ? &residual : nullptr, 1, 0, g.y.pixel);
    }
  }
}

void pool(const NhwcPool& args, const NhwcImages& x, const NhwcImages& y, Range rows) {
  const Tag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const Image in = args.shape.in, out = args.shape.out();
  const Slide &down = args.shape.window.h, &right = args.shape.window.w;
  // The taps of an output that lie on the image.
  const auto inside = [](const Slide& slide, int64_t output, int64_t extent) {
    Range taps{0, slide.kernel};
    while (slide.at(output, taps.begin) < 0) ++taps.begin;
    while (slide.at(output, taps.end - 1) >= extent) --taps.end;
    return taps;
  };
  const bool largest = args.divisor == 0;
  for (int64_t at = rows.begin; at < rows.end; ++at) {
    const int64_t image = at / out.h, row = at % out.h;
    const Range us = inside(down, row, in.h);
    for (int64_t column = 0; column < out.w; ++column) {
      const Range vs = inside(right, column, in.w);
      const double count =
          args.divisor > 0 ? args.divisor : double((us.end - us.begin) * (vs.end - vs.begin));
      const float* from = x.at(image, down.at(row, us.begin), right.at(column, vs.begin));
      float* to = y.at(image, row, column);
      for (int64_t c = 0; c < in.c; c += lanes) {
        V value = largest ? hn::LoadU(d, from + c) : hn::Zero(d);
        for (int64_t u = 0; u < us.end - us.begin; ++u) {
          const float* tap = from + u * down.dilation * x.row + c;
          for (int64_t v = 0; v < vs.end - vs.begin; ++v, tap += right.dilation * x.pixel) {
            const V next = hn::LoadU(d, tap);
            value = largest ? nan_max(d, value, next) : hn::Add(value, next);
          }
        }
        if (!largest) value = hn::Mul(value, hn::Set(d, float(1 / count)));
        store(activate(d, args.act, value), to + c, y.pixel - c);
      }
    }
  }
}

constexpr NhwcFunctions kNhwc{lanes, kVectors, tile, convolve, depthwise, pool};

}  // namespace

}  // namespace nhwc_conv

const NhwcFunctions* nhwc() { return &nhwc_conv::kNhwc; }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {
namespace {

HWY_EXPORT(nhwc);
const NhwcFunctions& nhwc_functions() { return *HWY_DYNAMIC_DISPATCH(nhwc)(); }

NhwcPanels panels_of(int64_t k) { return {k, nhwc_functions().lanes(), nhwc_functions().panel}; }

int64_t padded_channels(int64_t k) {
  return std::max(panels_of(k).vectors * nhwc_functions().lanes(), nhwc_pixel(k));
}

}  // namespace

NhwcConv::NhwcConv(const Conv2dShape& shape, const NhwcImages& x)
    : shape_(shape), depthwise_(shape.groups > 1) {
  const Slide &down = shape.window.h, &right = shape.window.w;
  const bool whole_rows = !depthwise_ && right.dilation == 1;
  run_ = whole_rows ? right.kernel * x.pixel : x.pixel;
  for (int64_t u = 0; u < down.kernel; ++u) {
    for (int64_t v = 0; v < (whole_rows ? 1 : right.kernel); ++v) {
      runs_.push_back((u * down.dilation - down.pad) * x.row +
                      (v * right.dilation - right.pad) * x.pixel);
    }
  }
}

int64_t NhwcConv::weight_floats() const {
  const int64_t area = shape_.window.h.kernel * shape_.window.w.kernel;
  const int64_t taps = depthwise_ ? area : run_ * int64_t(runs_.size());
  return padded_channels(shape_.k) * (taps + 1) + kGroup<float>;
}

void NhwcConv::pack(const float* w, const float* b, float* packed) {
  const int64_t k = shape_.k, c = shape_.group_in();
  const int64_t area = shape_.window.h.kernel * shape_.window.w.kernel;
  if (b != nullptr) std::copy_n(b, k, packed);
  bias_ = packed;
  w_ = packed += padded_channels(k);
  if (depthwise_) {
    for (int64_t tap = 0; tap < area; ++tap) {
      for (int64_t o = 0; o < k; ++o) packed[tap * nhwc_pixel(k) + o] = w[o * area + tap];
    }
    return;
  }
  const int64_t lanes = nhwc_functions().lanes();
  const int64_t pixel = run_ * int64_t(runs_.size()) / area, taps = area * pixel;
  for (int64_t panel = 0; panel < panels(); ++panel) {
    const Range vectors = panels_of(k).at(panel);
    const int64_t first = vectors.begin * lanes, width = vectors.end * lanes - first;
    float* to = packed + first * taps;
    for (int64_t o = first; o < std::min(k, first + width); ++o) {
      for (int64_t tap = 0; tap < area; ++tap) {
        for (int64_t i = 0; i < c; ++i) {
          to[(tap * pixel + i) * width + o - first] = w[(o * c + i) * area + tap];
        }
      }
    }
  }
}

int64_t NhwcConv::tiles(int64_t images) const {
  if (depthwise_) return images * shape_.out().h;
  const int64_t tile = nhwc_functions().tile(shape_.k);
  return (images * shape_.out().pixels() + tile - 1) / tile;
}

int64_t NhwcConv::panels() const { return depthwise_ ? 1 : panels_of(shape_.k).count; }

void NhwcConv::run(const NhwcImages& x, const NhwcImages& y, const NhwcEpilogue& epilogue,
                   int64_t images, Range tiles, Range panels) const {
  const NhwcArgs args{shape_,   runs_.data(), int64_t(runs_.size()), run_, w_, bias_, x, y,
                      epilogue, images};
  if (depthwise_) return nhwc_functions().depthwise(args, tiles);
  nhwc_functions().convolve(args, tiles, panels);
}

void NhwcPool::run(const NhwcImages& x, const NhwcImages& y, Range rows) const {
  nhwc_functions().pool(*this, x, y, rows);
}

void nhwc_load(const float* x, const Image& image, const NhwcImages& y, Range images) {
  for (int64_t i = images.begin; i < images.end; ++i) {
    for (int64_t row = 0; row < image.h; ++row) {
      const float* from = x + (i * image.c * image.h + row) * image.w;
      constexpr int64_t kColumns = 16;  // a cache line
      for (int64_t begin = 0; begin < image.w; begin += kColumns) {
        float* to = y.at(i, row, begin);
        const int64_t columns = std::min(kColumns, image.w - begin);
        for (int64_t c = 0; c < image.c; ++c) {
          const float* numbers = from + c * image.pixels() + begin;
          for (int64_t k = 0; k < columns; ++k) to[k * y.pixel + c] = numbers[k];
        }
        for (int64_t k = 0; image.c < y.pixel && k < columns; ++k) {
          std::fill(to + k * y.pixel + image.c, to + (k + 1) * y.pixel, 0.0f);
        }
      }
    }
  }
}

void nhwc_store(const NhwcImages& x, const Image& image, float* y, Range images) {
  for (int64_t i = images.begin; i < images.end; ++i) {
    for (int64_t row = 0; row < image.h; ++row) {
      for (int64_t c = 0; c < image.c; ++c) {
        float* to = y + ((i * image.c + c) * image.h + row) * image.w;
        for (int64_t column = 0; column < image.w; ++column) {
          to[column] = x.at(i, row, column)[c];
        }
      }
    }
  }
}

void nhwc_border(const NhwcImages& x, const Image& image, int64_t down, int64_t right,
                 Range images) {
  if (down == 0 && right == 0) return;
  for (int64_t i = images.begin; i < images.end; ++i) {
    std::fill(x.at(i, -down, -right), x.at(i, 0, 0), 0.0f);
    for (int64_t row = 0; row + 1 < image.h; ++row) {
      std::fill(x.at(i, row, image.w), x.at(i, row + 1, 0), 0.0f);
    }
    std::fill(x.at(i, image.h - 1, image.w), x.at(i, image.h + down - 1, image.w + right), 0.0f);
  }
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
