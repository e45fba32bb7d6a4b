#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

// Calls f(c, r, s, i) for each tap of output channel o at output (p, q) that lies on the image: the
// input's channel, row and column, and the tap's index in w.
template <typename F>
void for_taps(const Conv2dShape& shape, int64_t o, int64_t p, int64_t q, F f) {
  const Slide &down = shape.window.h, &right = shape.window.w;
  const int64_t channels = shape.group_in(), first = o / shape.group_out() * channels;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t u = 0; u < down.kernel; ++u) {
      const int64_t r = down.at(p, u);
      if (r < 0 || r >= shape.in.h) continue;
      const int64_t row = ((o * channels + c) * down.kernel + u) * right.kernel;
      for (int64_t v = 0; v < right.kernel; ++v) {
        const int64_t s = right.at(q, v);
        if (s >= 0 && s < shape.in.w) f(first + c, r, s, row + v);
      }
    }
  }
}

// Calls f(p, q, j) for each output of channel o of sample i: its row and column, and its index in
// y.
template <typename F>
void for_outputs(const Conv2dShape& shape, int64_t i, int64_t o, F f) {
  const Image out = shape.out();
  for (int64_t p = 0; p < out.h; ++p) {
    for (int64_t q = 0; q < out.w; ++q) f(p, q, ((i * out.c + o) * out.h + p) * out.w + q);
  }
}

int64_t pixel_place(const Image& in, int64_t i, int64_t c, int64_t r, int64_t s) {
  return ((i * in.c + c) * in.h + r) * in.w + s;
}

std::unique_ptr<Step> prepare_conv(const Conv2d& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), shape = op.shape, &pool = cpu_runtime(binding.runtime()).pool(),
                    x = binding.reads(op.x), w = binding.reads(op.w), b = binding.reads(op.b),
                    y = binding.writes(op.y)]() mutable {
    x.load();
    w.load();
    b.load();
    for_each(pool, n * shape.k, [&](int64_t io) {
      const int64_t i = io / shape.k, o = io % shape.k;
      for_outputs(shape, i, o, [&](int64_t p, int64_t q, int64_t j) {
        double sum = b ? b[o] : 0.0;
        for_taps(shape, o, p, q, [&](int64_t c, int64_t r, int64_t s, int64_t tap) {
          sum += x[pixel_place(shape.in, i, c, r, s)] * w[tap];
        });
        y[j] = sum;
      });
    });
    y.store();
  });
}

std::unique_ptr<Step> prepare_conv_grad_x(const Conv2dGradX& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), shape = op.shape, &pool = cpu_runtime(binding.runtime()).pool(),
                    dy = binding.reads(op.dy), w = binding.reads(op.w),
                    dx = binding.writes(op.dx)]() mutable {
    dy.load();
    w.load();
    for_each(pool, n, [&](int64_t i) {
      for (int64_t j = 0; j < shape.in.numel(); ++j) dx[i * shape.in.numel() + j] = 0;
      for (int64_t o = 0; o < shape.k; ++o) {
        for_outputs(shape, i, o, [&](int64_t p, int64_t q, int64_t j) {
          for_taps(shape, o, p, q, [&](int64_t c, int64_t r, int64_t s, int64_t tap) {
            dx[pixel_place(shape.in, i, c, r, s)] += dy[j] * w[tap];
          });
        });
      }
    });
    dx.store();
  });
}

std::unique_ptr<Step> prepare_conv_grad_w(const Conv2dGradW& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), shape = op.shape, &pool = cpu_runtime(binding.runtime()).pool(),
                    x = binding.reads(op.x), dy = binding.reads(op.dy), dw = binding.writes(op.dw),
                    db = binding.writes(op.db)]() mutable {
    x.load();
    dy.load();
    // Adds up the sums of the samples: a single sum over all pixels would lose more to rounding
    // than the fast kernels do.
    const auto sum = [&](int64_t o, auto term) {
      double all = 0;
      for (int64_t i = 0; i < n; ++i) {
        double sample = 0;
        for_outputs(shape, i, o,
                    [&](int64_t p, int64_t q, int64_t j) { sample += term(i, p, q, j); });
        all += sample;
      }
      return all;
    };
    const Slide &down = shape.window.h, &right = shape.window.w;
    const int64_t channels = shape.group_in(), taps = down.kernel * right.kernel;
    for_each(pool, shape.k * channels * taps, [&](int64_t at) {
      const int64_t o = at / (channels * taps), u = at / right.kernel % down.kernel;
      const int64_t c = o / shape.group_out() * channels + at / taps % channels;
      const int64_t v = at % right.kernel;
      dw[at] = sum(o, [&](int64_t i, int64_t p, int64_t q, int64_t j) {
        const int64_t r = down.at(p, u), s = right.at(q, v);
        const bool inside = r >= 0 && r < shape.in.h && s >= 0 && s < shape.in.w;
        return inside ? dy[j] * x[pixel_place(shape.in, i, c, r, s)] : 0.0;
      });
    });
    for_each(pool, db ? shape.k : 0, [&](int64_t o) {
      db[o] = sum(o, [&](int64_t, int64_t, int64_t, int64_t j) { return dy[j]; });
    });
    dw.store();
    db.store();
  });
}

}  // namespace

KernelTable conv_reference() {
  return {reference_kernel(prepare_conv), reference_kernel(prepare_conv_grad_x),
          reference_kernel(prepare_conv_grad_w)};
}

}  // namespace ridgeline::cpu
