#include <fmt/format.h>

#include <cmath>

#include "tests/support/cases.h"

namespace ridgeline::test {
namespace {

enum class Tail { none, relu, pool, relu_pool };

PoolShape pool_of_three(int64_t channels, int64_t length) {
  return {{channels, 1, length}, {Slide{}, Slide{3, 3, 0, 1}}};
}

struct Sizes {
  int64_t n, channels, length, out, kernel;
  Tail tail;
};

Case convolution(const Sizes& sizes, DType dtype, bool wide_bias) {
  const auto& [n, channels, length, out, kernel, tail] = sizes;
  Conv2dShape shape;
  shape.in = {channels, 1, length};
  shape.k = out;
  shape.window.w.kernel = kernel;
  const int64_t steps = shape.out().w, numel = shape.out().numel();
  CaseBuilder c(fmt::format("signal conv {} of {} -> {} k{} {}", n, to_string(shape.in), out,
                            kernel, int(tail)),
                dtype);
  const bool relu = tail == Tail::relu || tail == Tail::relu_pool;
  const bool pools = tail == Tail::pool || tail == Tail::relu_pool;
  const Value x = c.in("x", {n, channels * length});
  const Value w =
      c.param("w", {out, channels, kernel}, normal(1 / std::sqrt(double(channels * kernel))));
  const Value b = tail == Tail::pool ? Value{}
                  : wide_bias        ? c.wide("b", {out}, Role::param)
                                     : c.param("b", {out});
  Value y = relu || pools ? c.temp("z", {n, numel}) : c.out("z", {n, numel});
  c.add(Conv2d{x, w, b, y, shape});
  if (relu) {
    const Value positive = pools ? c.temp("a", {n, numel}) : c.out("a", {n, numel});
    c.add(Activation{ActivationKind::relu, y, positive});
    y = positive;
  }
  if (pools) c.add(MaxPool{y, c.out("p", {n, out * (steps / 3)}), pool_of_three(out, steps)});
  return c.done();
}

// Normalisation over whole items, relu and a pool of three.
Case norm(int64_t n, int64_t channels, int64_t length, DType dtype) {
  CaseBuilder c(fmt::format("signal norm {} of {}x{}", n, channels, length), dtype);
  const Shape shape{n, channels * length};
  LayerNorm op;
  op.x = c.in("x", shape);
  op.gamma = c.param("gamma", {channels, length}, uniform(0.5, 1.5));
  op.beta = c.param("beta", {channels, length}, normal(0.3));
  op.y = c.temp("normed", shape);
  op.width = channels * length;
  c.add(op);
  const Value positive = c.temp("positive", shape);
  c.add(Activation{ActivationKind::relu, op.y, positive});
  c.add(
      MaxPool{positive, c.out("y", {n, channels * (length / 3)}), pool_of_three(channels, length)});
  return c.done();
}

}  // namespace

// All numbers of taps; one output; lengths that are no multiple of a tile or of a pool; more tiles
// than a chunk has, in one item and over items.
std::vector<Case> small_signal_cases(DType dtype) {
  std::vector<Case> all;
  for (const Sizes& sizes :
       {Sizes{2, 32, 7, 32, 7, Tail::none}, Sizes{1, 32, 3, 32, 3, Tail::relu},
        Sizes{5, 48, 31, 64, 3, Tail::relu}, Sizes{3, 32, 41, 32, 7, Tail::relu_pool},
        Sizes{2, 64, 26, 32, 7, Tail::pool}, Sizes{1, 32, 121, 32, 7, Tail::relu_pool},
        Sizes{11, 32, 35, 32, 3, Tail::none}, Sizes{2, 32, 22, 96, 5, Tail::relu_pool},
        Sizes{2, 32, 23, 32, 4, Tail::relu}, Sizes{3, 32, 23, 32, 6, Tail::none},
        Sizes{1, 256, 20, 32, 7, Tail::relu}}) {
    all.push_back(convolution(sizes, dtype, sizes.n % 2 == 1));
  }
  all.push_back(norm(3, 32, 12, dtype));
  all.push_back(norm(1, 16, 31, dtype));  // a last position that no window holds
  all.push_back(norm(5, 48, 102, dtype));
  return all;
}

}  // namespace ridgeline::test
