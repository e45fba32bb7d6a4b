// Bounds of convolutions and pools.
#include "tests/support/bounds_rules.h"

namespace ridgeline::test {
namespace {

// A sum of products or numbers, in any order.
struct Sum {
  double size = 0, spread = 0, count = 0;

  void add(double value, double error) {
    size += std::abs(value);
    spread += error;
    ++count;
  }
  void add_product(double a, double a_error, double b, double b_error) {
    add(a * b, std::abs(a) * b_error + std::abs(b) * a_error + a_error * b_error);
  }
  double error(double u, double factors = 0) const {
    return spread + ((count + 2) * u + factors) * (size + spread);
  }
};

// Calls f(p, q, u, v, r, s) wherever output (p, q) of a pair of axes meets the image.
template <typename F>
void for_meetings(const Window& window, const Image& in, F f) {
  for (int64_t p = 0; p < window.h.outputs(in.h); ++p) {
    for (int64_t q = 0; q < window.w.outputs(in.w); ++q) {
      for (int64_t u = 0; u < window.h.kernel; ++u) {
        for (int64_t v = 0; v < window.w.kernel; ++v) {
          const int64_t r = window.h.at(p, u), s = window.w.at(q, v);
          if (r >= 0 && r < in.h && s >= 0 && s < in.w) f(p, q, u, v, r, s);
        }
      }
    }
  }
}

// Calls f(index in x, index in w, index in y) for every product of a convolution.
template <typename F>
void for_products(const Conv2dShape& shape, int64_t n, F f) {
  const Image in = shape.in, out = shape.out();
  const int64_t channels = shape.group_in();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t o = 0; o < shape.k; ++o) {
      const int64_t first = o / shape.group_out() * channels;
      for (int64_t c = 0; c < channels; ++c) {
        for_meetings(shape.window, in,
                     [&](int64_t p, int64_t q, int64_t u, int64_t v, int64_t r, int64_t s) {
                       const int64_t x = ((i * in.c + first + c) * in.h + r) * in.w + s;
                       const int64_t w =
                           ((o * channels + c) * shape.window.h.kernel + u) * shape.window.w.kernel;
                       f(x, w + v, ((i * out.c + o) * out.h + p) * out.w + q);
                     });
      }
    }
  }
}

// Calls f(index in x, index in y) for every tap of a pool.
template <typename F>
void for_pooled(const PoolShape& shape, int64_t n, F f) {
  const Image in = shape.in, out = shape.out();
  for (int64_t plane = 0; plane < n * in.c; ++plane) {
    for_meetings(shape.window, in,
                 [&](int64_t p, int64_t q, int64_t, int64_t, int64_t r, int64_t s) {
                   f((plane * in.h + r) * in.w + s, (plane * out.h + p) * out.w + q);
                 });
  }
}

std::vector<double> divisors(const PoolShape& shape, PoolCount count, const Value& y) {
  const Window& window = shape.window;
  std::vector<double> all(size_t(y.shape.numel()), 0.0);
  for_pooled(shape, y.shape[0], [&](int64_t, int64_t out) { ++all[size_t(out)]; });
  if (count == PoolCount::window) {
    std::fill(all.begin(), all.end(), double(window.h.kernel * window.w.kernel));
  }
  return all;
}

}  // namespace

void Rules::operator()(const Conv2d& op) const {
  std::vector<Sum> sums(size_t(op.y.shape.numel()));
  for_products(op.shape, op.n(), [&](int64_t x, int64_t w, int64_t y) {
    sums[size_t(y)].add_product(val(op.x)[x], e(op.x, x), val(op.w)[w], e(op.w, w));
  });
  for (size_t y = 0; y < sums.size(); ++y) {
    const int64_t o = int64_t(y) / op.shape.out().pixels() % op.shape.k;
    if (op.b) sums[y].add(val(op.b)[o], e(op.b, o));
    store(op.y, int64_t(y), sums[y].error(u(op.x), factor_roundoff(program.precision)));
  }
}

void Rules::operator()(const Conv2dGradX& op) const {
  std::vector<Sum> sums(size_t(op.dx.shape.numel()));
  for_products(op.shape, op.n(), [&](int64_t x, int64_t w, int64_t y) {
    sums[size_t(x)].add_product(val(op.dy)[y], e(op.dy, y), val(op.w)[w], e(op.w, w));
  });
  for (size_t x = 0; x < sums.size(); ++x) {
    store(op.dx, int64_t(x), sums[x].error(u(op.dy), factor_roundoff(program.precision)));
  }
}

void Rules::operator()(const Conv2dGradW& op) const {
  std::vector<Sum> sums(size_t(op.dw.shape.numel()));
  for_products(op.shape, op.n(), [&](int64_t x, int64_t w, int64_t y) {
    sums[size_t(w)].add_product(val(op.dy)[y], e(op.dy, y), val(op.x)[x], e(op.x, x));
  });
  for (size_t w = 0; w < sums.size(); ++w) {
    store(op.dw, int64_t(w), sums[w].error(u(op.dy), factor_roundoff(program.precision)));
  }
  if (!op.db) return;
  std::vector<Sum> bias(size_t(op.shape.k));
  for (int64_t y = 0; y < op.dy.shape.numel(); ++y) {
    bias[size_t(y / op.shape.out().pixels() % op.shape.k)].add(val(op.dy)[y], e(op.dy, y));
  }
  for (size_t o = 0; o < bias.size(); ++o) store(op.db, int64_t(o), bias[o].error(u(op.dy)));
}

// A maximum has at most the error of the worst of its taps.
void Rules::operator()(const MaxPool& op) const {
  std::vector<double> worst(size_t(op.y.shape.numel()), 0.0);
  for_pooled(op.shape, op.n(), [&](int64_t x, int64_t y) {
    worst[size_t(y)] = std::max(worst[size_t(y)], e(op.x, x));
  });
  // A maximum is one of its taps: without their errors it is exact.
  for (size_t y = 0; y < worst.size(); ++y) {
    err(op.y)[y] = 0;
    if (worst[y] > 0) store(op.y, int64_t(y), worst[y]);
  }
}

// A tap may win or lose a window's gradient only if it is within its bound of the largest.
void Rules::operator()(const MaxPoolGrad& op) const {
  const int64_t outputs = op.dy.shape.numel();
  std::vector<int64_t> best(size_t(outputs), -1);
  std::vector<double> contested(size_t(outputs), 0.0);
  const auto slack = [&](int64_t x, int64_t y) {
    return val(op.x)[best[size_t(y)]] - val(op.x)[x] <= e(op.x, x) + e(op.x, best[size_t(y)]) &&
           e(op.x, x) + e(op.x, best[size_t(y)]) > 0;
  };
  for_pooled(op.shape, op.n(), [&](int64_t x, int64_t y) {
    if (best[size_t(y)] < 0 || val(op.x)[x] > val(op.x)[best[size_t(y)]]) best[size_t(y)] = x;
  });
  for_pooled(op.shape, op.n(), [&](int64_t x, int64_t y) {
    if (x != best[size_t(y)] && slack(x, y)) contested[size_t(y)] = 1;
  });
  std::vector<Sum> sums(size_t(op.dx.shape.numel()));
  for_pooled(op.shape, op.n(), [&](int64_t x, int64_t y) {
    const double dy = val(op.dy)[y], dy_error = e(op.dy, y);
    const bool open = contested[size_t(y)] > 0 && slack(x, y);
    if (x == best[size_t(y)]) {
      sums[size_t(x)].add(dy, dy_error + (open ? std::abs(dy) : 0.0));
    } else if (open) {
      sums[size_t(x)].add(dy, dy_error + std::abs(dy));
    }
  });
  for (size_t x = 0; x < sums.size(); ++x) {
    // The gradient of a single window is a copy.
    const Sum& sum = sums[x];
    store(op.dx, int64_t(x), sum.count > 1 ? sum.error(u(op.dy)) : sum.spread);
  }
}

void Rules::operator()(const AvgPool& op) const {
  const auto count = divisors(op.shape, op.count, op.y);
  std::vector<Sum> sums(size_t(op.y.shape.numel()));
  for_pooled(op.shape, op.n(),
             [&](int64_t x, int64_t y) { sums[size_t(y)].add(val(op.x)[x], e(op.x, x)); });
  for (size_t y = 0; y < sums.size(); ++y) {
    store(op.y, int64_t(y), sums[y].error(u(op.x)) / count[y]);
  }
}

void Rules::operator()(const AvgPoolGrad& op) const {
  const auto count = divisors(op.shape, op.count, op.dy);
  std::vector<Sum> sums(size_t(op.dx.shape.numel()));
  for_pooled(op.shape, op.n(), [&](int64_t x, int64_t y) {
    sums[size_t(x)].add(val(op.dy)[y] / count[size_t(y)], e(op.dy, y) / count[size_t(y)]);
  });
  for (size_t x = 0; x < sums.size(); ++x) {
    store(op.dx, int64_t(x), sums[x].error(u(op.dy)));
  }
}

void Rules::operator()(const OneHotConv1d& op) const {
  const auto* token = values[op.token].as<int32_t>();
  for (int64_t i = 0; i < op.y.shape.numel(); ++i) {
    const int64_t t = i % op.steps(), o = i / op.steps() % op.out();
    const int32_t* text = token + i / op.steps() / op.out() * op.length();
    Sum sum;
    if (op.b) sum.add(val(op.b)[o], e(op.b, o));
    for (int64_t u = 0; u < op.kernel(); ++u) {
      if (text[t + u] >= op.symbols()) continue;
      const int64_t at = (o * op.symbols() + text[t + u]) * op.kernel() + u;
      sum.add(val(op.w)[at], e(op.w, at));
    }
    store(op.y, i, sum.error(u(op.w)));
  }
}

void Rules::operator()(const OneHotConv1dGradW& op) const {
  const auto* token = values[op.token].as<int32_t>();
  std::vector<Sum> taps(size_t(op.dw.shape.numel())), biases(size_t(op.out()));
  for (int64_t i = 0; i < op.dy.shape.numel(); ++i) {
    const int64_t t = i % op.steps(), o = i / op.steps() % op.out();
    const int32_t* text = token + i / op.steps() / op.out() * op.length();
    biases[size_t(o)].add(val(op.dy)[i], e(op.dy, i));
    for (int64_t u = 0; u < op.kernel(); ++u) {
      if (text[t + u] >= op.symbols()) continue;
      taps[size_t((o * op.symbols() + text[t + u]) * op.kernel() + u)].add(val(op.dy)[i],
                                                                           e(op.dy, i));
    }
  }
  for (size_t i = 0; i < taps.size(); ++i) store(op.dw, int64_t(i), taps[i].error(u(op.dy)));
  for (size_t o = 0; op.db && o < biases.size(); ++o) {
    store(op.db, int64_t(o), biases[o].error(u(op.dy)));
  }
}

}  // namespace ridgeline::test
