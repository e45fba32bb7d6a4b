#include <cmath>
#include <limits>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

// Calls f(j, at) for each output j of plane `plane` (one channel of one sample), where at(g) calls
// g(index in x) for each tap of its window that lies on the image, row by row.
template <typename F>
void for_windows(const PoolShape& shape, int64_t plane, F f) {
  const Image in = shape.in, out = shape.out();
  const Slide &down = shape.window.h, &right = shape.window.w;
  for (int64_t j = 0; j < out.pixels(); ++j) {
    const auto taps = [&](auto g) {
      for (int64_t u = 0; u < down.kernel; ++u) {
        const int64_t r = down.at(j / out.w, u);
        if (r < 0 || r >= in.h) continue;
        for (int64_t v = 0; v < right.kernel; ++v) {
          const int64_t s = right.at(j % out.w, v);
          if (s >= 0 && s < in.w) g((plane * in.h + r) * in.w + s);
        }
      }
    };
    f(plane * out.pixels() + j, taps);
  }
}

// Returns where the largest tap is first reached; -1 in a window without taps. NaN counts as the
// largest.
template <typename Taps>
int64_t largest(const Doubles& x, const Taps& taps) {
  int64_t best = -1;
  taps([&](int64_t at) {
    if (best < 0 || x[at] > x[best] || (std::isnan(x[at]) && !std::isnan(x[best]))) best = at;
  });
  return best;
}

template <typename Taps>
double divisor(const PoolShape& shape, PoolCount count, const Taps& taps) {
  if (count == PoolCount::window) {
    return double(shape.window.h.kernel) * double(shape.window.w.kernel);
  }
  double on_image = 0;
  taps([&](int64_t) { ++on_image; });
  return on_image;
}

std::unique_ptr<Step> prepare_max(const MaxPool& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), shape = op.shape, &pool = cpu_runtime(binding.runtime()).pool(),
                    x = binding.reads(op.x), y = binding.writes(op.y)]() mutable {
    x.load();
    for_each(pool, n * shape.in.c, [&](int64_t plane) {
      for_windows(shape, plane, [&](int64_t j, const auto& taps) {
        const int64_t best = largest(x, taps);
        y[j] = best < 0 ? -std::numeric_limits<double>::infinity() : x[best];
      });
    });
    y.store();
  });
}

std::unique_ptr<Step> prepare_max_grad(const MaxPoolGrad& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), shape = op.shape, &pool = cpu_runtime(binding.runtime()).pool(),
                    x = binding.reads(op.x), dy = binding.reads(op.dy),
                    dx = binding.writes(op.dx)]() mutable {
    x.load();
    dy.load();
    for_each(pool, n * shape.in.c, [&](int64_t plane) {
      const int64_t pixels = shape.in.pixels();
      for (int64_t at = plane * pixels; at < (plane + 1) * pixels; ++at) dx[at] = 0;
      for_windows(shape, plane, [&](int64_t j, const auto& taps) {
        const int64_t best = largest(x, taps);
        if (best >= 0) dx[best] += dy[j];
      });
    });
    dx.store();
  });
}

std::unique_ptr<Step> prepare_avg(const AvgPool& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), shape = op.shape, count = op.count,
                    &pool = cpu_runtime(binding.runtime()).pool(), x = binding.reads(op.x),
                    y = binding.writes(op.y)]() mutable {
    x.load();
    for_each(pool, n * shape.in.c, [&](int64_t plane) {
      for_windows(shape, plane, [&](int64_t j, const auto& taps) {
        double sum = 0;
        taps([&](int64_t at) { sum += x[at]; });
        y[j] = sum / divisor(shape, count, taps);
      });
    });
    y.store();
  });
}

std::unique_ptr<Step> prepare_avg_grad(const AvgPoolGrad& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), shape = op.shape, count = op.count,
                    &pool = cpu_runtime(binding.runtime()).pool(), dy = binding.reads(op.dy),
                    dx = binding.writes(op.dx)]() mutable {
    dy.load();
    for_each(pool, n * shape.in.c, [&](int64_t plane) {
      const int64_t pixels = shape.in.pixels();
      for (int64_t at = plane * pixels; at < (plane + 1) * pixels; ++at) dx[at] = 0;
      for_windows(shape, plane, [&](int64_t j, const auto& taps) {
        const double share = dy[j] / divisor(shape, count, taps);
        taps([&](int64_t at) { dx[at] += share; });
      });
    });
    dx.store();
  });
}

}  // namespace

KernelTable pool_reference() {
  return {reference_kernel(prepare_max), reference_kernel(prepare_max_grad),
          reference_kernel(prepare_avg), reference_kernel(prepare_avg_grad)};
}

}  // namespace ridgeline::cpu
