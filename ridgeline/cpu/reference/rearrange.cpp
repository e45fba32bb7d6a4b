#include <algorithm>

#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

std::unique_ptr<Step> prepare_pad(const Pad& op, ReferenceBinding& binding) {
  return make_step([op, x = binding.reads(op.x), y = binding.writes(op.y)]() mutable {
    x.load();
    const auto &in = op.in, &out = op.out, &before = op.before;
    int64_t at = 0;
    for (int64_t n = 0; n < op.n(); ++n) {
      for (int64_t i = 0; i < out[0]; ++i) {
        for (int64_t j = 0; j < out[1]; ++j) {
          for (int64_t k = 0; k < out[2]; ++k, ++at) {
            const int64_t a = i - before[0], b = j - before[1], c = k - before[2];
            const bool inside = a >= 0 && a < in[0] && b >= 0 && b < in[1] && c >= 0 && c < in[2];
            y[at] = inside ? x[((n * in[0] + a) * in[1] + b) * in[2] + c] : op.value;
          }
        }
      }
    }
    y.store();
  });
}

std::unique_ptr<Step> prepare_transpose(const Transpose& op, ReferenceBinding& binding) {
  return make_step([op, x = binding.reads(op.x), y = binding.writes(op.y)]() mutable {
    x.load();
    const int64_t sample = op.in.numel();
    for (int64_t i = 0; i < y.size(); ++i) {
      int64_t rest = i % sample, from = i - rest;
      for (int a = op.in.rank(); a-- > 0;) {
        from += rest % op.extent(a) * op.stride(a);
        rest /= op.extent(a);
      }
      y[i] = x[from];
    }
    y.store();
  });
}

// Calls f(index in the small image, index in the large one, weight) for a whole batch.
template <typename F>
void for_sources(const UpsampleShape& s, int64_t n, F f) {
  const Image out = s.out();
  for (int64_t image = 0; image < n * s.in.c; ++image) {
    for (int64_t i = 0; i < out.h; ++i) {
      const auto h = UpsampleShape::source(i, s.factor_h, s.in.h, s.mode);
      for (int64_t j = 0; j < out.w; ++j) {
        const auto w = UpsampleShape::source(j, s.factor_w, s.in.w, s.mode);
        const int64_t large = (image * out.h + i) * out.w + j, small = image * s.in.h;
        const auto add = [&](int64_t row, int64_t column, double weight) {
          if (weight != 0) f((small + row) * s.in.w + column, large, weight);
        };
        add(h.low, w.low, (1 - h.part) * (1 - w.part));
        add(h.low, w.high, (1 - h.part) * w.part);
        add(h.high, w.low, h.part * (1 - w.part));
        add(h.high, w.high, h.part * w.part);
      }
    }
  }
}

std::unique_ptr<Step> prepare_upsample(const Upsample& op, ReferenceBinding& binding) {
  return make_step(
      [shape = op.shape, n = op.n(), x = binding.reads(op.x), y = binding.writes(op.y)]() mutable {
        x.load();
        std::fill_n(y.data(), y.size(), 0.0);
        for_sources(shape, n, [&](int64_t small, int64_t large, double weight) {
          y[large] += weight * x[small];
        });
        y.store();
      });
}

std::unique_ptr<Step> prepare_upsample_grad(const UpsampleGrad& op, ReferenceBinding& binding) {
  return make_step([shape = op.shape, n = op.n(), dy = binding.reads(op.dy),
                    dx = binding.writes(op.dx)]() mutable {
    dy.load();
    std::fill_n(dx.data(), dx.size(), 0.0);
    for_sources(shape, n, [&](int64_t small, int64_t large, double weight) {
      dx[small] += weight * dy[large];
    });
    dx.store();
  });
}

}  // namespace

KernelTable rearrange_reference() {
  return {reference_kernel(prepare_pad), reference_kernel(prepare_transpose),
          reference_kernel(prepare_upsample), reference_kernel(prepare_upsample_grad)};
}

}  // namespace ridgeline::cpu
