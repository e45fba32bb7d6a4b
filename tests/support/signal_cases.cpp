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
                  : wide_bias        ? c.accumulator("b", {out}, Role::param)
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

// Normalisation over whole samples, relu and a pool of three.
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

// A character network for inference with one block of each kind: its kernels pass values to each
// other.
class SignalNet {
 public:
  explicit SignalNet(DType dtype) : c_("signal net", dtype) {
    constexpr int64_t kLength = 150, kSymbols = 5, kTaps = 7;
    const Value token =
        c_.make("token", DType::int32, {kItems, kLength}, Role::input, normal(1), kSymbols + 1);
    const Value w = c_.param("w_text", {kChannels, kSymbols, kTaps}),
                b = c_.param("b_text", {kChannels});
    length_ = kLength - kTaps + 1;
    next();
    c_.add(OneHotConv1d{token, w, b, x_});
  }

  void conv(int64_t taps) {
    Conv2dShape shape;
    shape.in = {kChannels, 1, length_};
    shape.k = kChannels;
    shape.window.w.kernel = taps;
    const Value x = x_, b = c_.param(named("b"), {kChannels});
    const Value w = c_.param(named("w"), {kChannels, kChannels, taps},
                             normal(1 / std::sqrt(double(kChannels * taps))));
    length_ = shape.out().w;
    next();
    c_.add(Conv2d{x, w, b, x_, shape});
  }
  void norm() {
    LayerNorm op;
    op.x = x_;
    op.gamma = c_.param(named("gamma"), {kChannels, length_}, uniform(0.5, 1.5));
    op.beta = c_.param(named("beta"), {kChannels, length_}, normal(0.3));
    op.width = kChannels * length_;
    next();
    op.y = x_;
    c_.add(op);
  }
  void relu() {
    const Value x = x_;
    next();
    c_.add(Activation{ActivationKind::relu, x, x_});
  }
  void pool() {
    const Value x = x_;
    const PoolShape shape = pool_of_three(kChannels, length_);
    length_ /= 3;
    next();
    c_.add(MaxPool{x, x_, shape});
  }
  Case done() { return c_.done(); }

 private:
  static constexpr int64_t kItems = 2, kChannels = 32;
  std::string named(const char* what) const { return fmt::format("{}{}", what, layer_); }
  void next() { x_ = c_.temp(fmt::format("x{}", ++layer_), {kItems, kChannels * length_}); }

  CaseBuilder c_;
  int64_t length_ = 0;
  int layer_ = 0;
  Value x_;
};

}  // namespace

Case signal_net_case(DType dtype) {
  SignalNet net(dtype);
  net.norm();
  net.relu();
  net.pool();
  net.conv(7);
  net.relu();
  net.pool();
  net.conv(3);
  net.relu();
  net.conv(3);
  net.norm();
  net.relu();
  net.pool();
  return net.done();
}

// All numbers of taps; one output; lengths that are not multiples of a tile or of a pool; more
// tiles than a chunk has, in one sample and over samples.
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
  all.push_back(norm(1, 16, 31, dtype));  // a last position that is in no window
  all.push_back(norm(5, 48, 102, dtype));
  return all;
}

}  // namespace ridgeline::test
