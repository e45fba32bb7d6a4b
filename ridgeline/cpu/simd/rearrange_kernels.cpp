#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "ridgeline/cpu/simd/kernel.h"

// Kernels that move numbers in contiguous pieces, for which compilers and memcpy are fast.
namespace ridgeline::cpu::simd {
namespace {

std::unique_ptr<Step> prepare_pad(const Span& span, const Binding& binding) {
  const auto& op = span.get<Pad>(0);
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([in = op.in, out = op.out, before = op.before, value = T(op.value),
                      rows = op.n() * op.out[0] * op.out[1], x = binding.read(op.x).as<T>(),
                      y = binding.write(op.y).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      // The part of a row that comes from x.
      const int64_t begin = std::clamp<int64_t>(before[2], 0, out[2]);
      const int64_t end = std::clamp<int64_t>(in[2] + before[2], begin, out[2]);
      pool.share(rows, 1, kLeastElements / out[2] + 1, [&](Range part) {
        for (int64_t r = part.begin; r < part.end; ++r) {
          T* to = y + r * out[2];
          const int64_t image = r / out[1];
          const int64_t a = image % out[0] - before[0], b = r % out[1] - before[1];
          if (a < 0 || a >= in[0] || b < 0 || b >= in[1]) {
            std::fill_n(to, out[2], value);
            continue;
          }
          const T* from = x + ((image / out[0] * in[0] + a) * in[1] + b) * in[2];
          std::fill_n(to, begin, value);
          std::copy_n(from + (begin - before[2]), end - begin, to + begin);
          std::fill_n(to + end, out[2] - end, value);
        }
      });
    });
  });
}

// Rows are runs along the last axis of y, whose elements have the stride `stride` in x.
std::unique_ptr<Step> prepare_transpose(const Span& span, const Binding& binding) {
  const auto& op = span.get<Transpose>(0);
  const int last = op.in.rank() - 1;
  std::array<int64_t, Transpose::kAxes> extents{}, strides{};
  for (int a = 0; a <= last; ++a) {
    extents[size_t(a)] = op.extent(a);
    strides[size_t(a)] = op.stride(a);
  }
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([last, extents, strides, sample = op.in.numel(),
                      rows = op.y.shape.numel() / op.extent(last), x = binding.read(op.x).as<T>(),
                      y = binding.write(op.y).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      const int64_t width = extents[size_t(last)], stride = strides[size_t(last)];
      pool.share(rows, 1, kLeastElements / width + 1, [&](Range part) {
        for (int64_t r = part.begin; r < part.end; ++r) {
          int64_t rest = r % (sample / width), from = r / (sample / width) * sample;
          for (int a = last; a-- > 0;) {
            from += rest % extents[size_t(a)] * strides[size_t(a)];
            rest /= extents[size_t(a)];
          }
          T* to = y + r * width;
          if (stride == 1) {
            std::copy_n(x + from, width, to);
          } else {
            for (int64_t i = 0; i < width; ++i) to[i] = x[from + i * stride];
          }
        }
      });
    });
  });
}

// Treats a column of pixels as a row, so that rows are long.
UpsampleShape flattened(UpsampleShape shape) {
  if (shape.out().w != 1) return shape;
  std::swap(shape.in.h, shape.in.w);
  std::swap(shape.factor_h, shape.factor_w);
  return shape;
}

// Lists for each position of the small image along an axis the positions of the large one that
// depend on it, with its weights there.
template <typename T>
using Taps = std::vector<std::vector<std::pair<int64_t, T>>>;

template <typename T>
Taps<T> taps_of(int64_t extent, int64_t factor, UpsampleMode mode) {
  Taps<T> taps{size_t(extent)};
  for (int64_t i = 0; i < extent * factor; ++i) {
    const auto source = UpsampleShape::source(i, factor, extent, mode);
    if (source.part < 1) taps[size_t(source.low)].emplace_back(i, T(1 - source.part));
    if (source.part > 0) taps[size_t(source.high)].emplace_back(i, T(source.part));
  }
  return taps;
}

// Computes one row of y from two rows of x.
template <typename T>
void upsample_row(const T* low, const T* high, T part, const UpsampleShape& s, T* to) {
  if (s.mode == UpsampleMode::nearest) {
    if (s.factor_w == 1) {
      std::copy_n(low, s.in.w, to);
      return;
    }
    for (int64_t j = 0; j < s.in.w; ++j) to = std::fill_n(to, s.factor_w, low[j]);
    return;
  }
  for (int64_t j = 0; j < s.in.w * s.factor_w; ++j) {
    const auto w = UpsampleShape::source(j, s.factor_w, s.in.w, s.mode);
    const T right = T(w.part), left = T(1) - right;
    const T above = left * low[w.low] + right * low[w.high];
    const T below = left * high[w.low] + right * high[w.high];
    to[j] = (T(1) - part) * above + part * below;
  }
}

std::unique_ptr<Step> prepare_upsample(const Span& span, const Binding& binding) {
  const auto& op = span.get<Upsample>(0);
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([s = flattened(op.shape), n = op.n(), x = binding.read(op.x).as<T>(),
                      y = binding.write(op.y).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      const Image out = s.out();
      pool.share(n * out.c * out.h, 1, kLeastElements / out.w + 1, [&](Range part) {
        for (int64_t r = part.begin; r < part.end; ++r) {
          const auto h = UpsampleShape::source(r % out.h, s.factor_h, s.in.h, s.mode);
          const T* image = x + r / out.h * s.in.pixels();
          upsample_row(image + h.low * s.in.w, image + h.high * s.in.w, T(h.part), s,
                       y + r * out.w);
        }
      });
    });
  });
}

std::unique_ptr<Step> prepare_upsample_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<UpsampleGrad>(0);
  return with_type(op.dx.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const UpsampleShape s = flattened(op.shape);
    return make_step([s, rows = taps_of<T>(s.in.h, s.factor_h, s.mode),
                      columns = taps_of<T>(s.in.w, s.factor_w, s.mode), n = op.n(),
                      dy = binding.read(op.dy).as<T>(), dx = binding.write(op.dx).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      const Image out = s.out();
      const bool whole_rows = s.factor_w == 1;  // each column of dx sums one column of dy
      const int64_t work = s.in.w * s.factor_h * s.factor_w;
      pool.share(n * s.in.c * s.in.h, 1, kLeastElements / work + 1, [&](Range part) {
        for (int64_t r = part.begin; r < part.end; ++r) {
          T* to = dx + r * s.in.w;
          std::fill_n(to, s.in.w, T(0));
          for (const auto& [i, share] : rows[size_t(r % s.in.h)]) {
            const T* from = dy + (r / s.in.h * out.h + i) * out.w;
            for (int64_t j = 0; whole_rows && j < s.in.w; ++j) to[j] += share * from[j];
            for (size_t j = 0; !whole_rows && j < columns.size(); ++j) {
              T sum = 0;
              for (const auto& [place, weight] : columns[j]) sum += weight * from[place];
              to[j] += share * sum;
            }
          }
        }
      });
    });
  });
}

// Returns the timestep of sample b that `at` selects.
int64_t selected(const int32_t* lengths, int64_t steps, int64_t at, int64_t b) {
  return at >= 0 ? at : std::max<int64_t>(0, (lengths != nullptr ? lengths[b] : steps) + at);
}

std::unique_ptr<Step> prepare_select(const Span& span, const Binding& binding) {
  const auto& op = span.get<SelectTimestep>(0);
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([steps = op.steps, at = op.at, n = op.batch(), width = op.features(),
                      lengths = binding.read(op.lengths).as<int32_t>(),
                      x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      pool.share(n, 1, kLeastElements / width + 1, [&](Range part) {
        for (int64_t b = part.begin; b < part.end; ++b) {
          const int64_t t = selected(lengths, steps, at, b);
          std::copy_n(x + (b * steps + t) * width, width, y + b * width);
        }
      });
    });
  });
}

std::unique_ptr<Step> prepare_select_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<SelectTimestepGrad>(0);
  return with_type(op.dx.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([steps = op.steps, at = op.at, n = op.batch(), width = op.features(),
                      lengths = binding.read(op.lengths).as<int32_t>(),
                      dy = binding.read(op.dy).as<T>(), dx = binding.write(op.dx).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      pool.share(n, 1, kLeastElements / (steps * width) + 1, [&](Range part) {
        for (int64_t b = part.begin; b < part.end; ++b) {
          const int64_t t = selected(lengths, steps, at, b);
          T* to = dx + b * steps * width;
          std::fill_n(to, t * width, T(0));
          std::copy_n(dy + b * width, width, to + t * width);
          std::fill_n(to + (t + 1) * width, (steps - t - 1) * width, T(0));
        }
      });
    });
  });
}

}  // namespace

KernelTable rearrange_kernels() {
  return computing_in(kFloatAndDouble, {one_op_kernel(&Pad::y, prepare_pad),
                                        one_op_kernel(&Transpose::y, prepare_transpose),
                                        one_op_kernel(&SelectTimestep::y, prepare_select),
                                        one_op_kernel(&SelectTimestepGrad::dx, prepare_select_grad),
                                        one_op_kernel(&Upsample::y, prepare_upsample),
                                        one_op_kernel(&UpsampleGrad::dx, prepare_upsample_grad)});
}

}  // namespace ridgeline::cpu::simd
