#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "tests/support/conv_cases.h"

namespace ridgeline::test {
namespace {

enum class Pool { max, average };

Window window(int64_t kernel, int64_t stride, int64_t pad) {
  return {Slide{kernel, stride, pad, 1}, Slide{kernel, stride, pad, 1}};
}

// Layers over images in sequence, then their backward passes, in the order of lowering; without
// those it is inference.
class Net {
 public:
  Net(std::string name, DType dtype, bool trains, const Image& in)
      : c_(std::move(name), dtype), dtype_(dtype), trains_(trains), image_(in) {
    x_ = c_.in("x", shape());
  }

  void conv(int64_t channels, const Window& over, int64_t groups = 1) {
    const Conv2dShape conv{image_, channels, over, groups};
    const double taps = double(conv.weight().numel()) / double(channels);
    const Value x = x_, w = c_.param(named("w"), conv.weight(), normal(1 / std::sqrt(taps)));
    const Value b = c_.param(named("b"), {channels});
    const bool lowest = back_.empty(), sums = forked_;
    forked_ = false;
    const std::string dx_name = named("dx"), dw_name = named("dw"), db_name = named("db");
    const Shape in = shape();
    image_ = conv.out();
    next();
    c_.add(Conv2d{x, w, b, x_, conv});
    back_.push_back([=, this](const Value& dy) {
      Value dx;
      const Conv2dGradW grad_w{x, dy, c_.out(dw_name, conv.weight()), c_.out(db_name, {channels}),
                               conv};
      if (sums) c_.add(grad_w);
      if (!lowest) {
        dx = c_.temp(dx_name, in);
        c_.add(Conv2dGradX{dy, w, dx, conv});
      }
      if (!sums) c_.add(grad_w);
      return dx;
    });
  }

  void batch_norm() {
    const Image in{image_.c, 1, image_.pixels()};
    const Shape channels{in.c};
    const DType wide = statistics(dtype_);
    const auto made = [&](const char* what, Role role, Fill fill) {
      return c_.make(named(what), wide, channels, role, fill);
    };
    const Value x = x_, gamma = c_.param(named("gamma"), channels, uniform(0.5, 1.5));
    const Value beta = c_.param(named("beta"), channels);
    const Value running_mean = made("running_mean", Role::state, normal(1));
    const Value running_var = made("running_var", Role::state, uniform(0.5, 2));
    if (!trains_) {
      next();
      c_.add(BatchNormInfer{x, gamma, beta, running_mean, running_var, x_, in});
      return;
    }
    const Value mean = made("mean", Role::temp, normal(1)),
                rstd = made("rstd", Role::temp, normal(1));
    const Value batches = c_.make(named("batches"), DType::int64, {1}, Role::state, constant(4));
    const std::string dx_name = named("dx"), dgamma = named("dgamma"), dbeta = named("dbeta");
    next();
    c_.add(BatchNorm{x, gamma, beta, running_mean, running_var, batches, x_, mean, rstd, in});
    back_.push_back([=, this](const Value& dy) {
      const Value dx = c_.temp(dx_name, x.shape);
      c_.add(BatchNormGrad{x, gamma, mean, rstd, dy, dx, c_.out(dgamma, channels),
                           c_.out(dbeta, channels), in});
      return dx;
    });
  }

  void activation(ActivationKind kind) {
    const Value x = x_;
    const std::string dx_name = named("dx");
    next();
    c_.add(Activation{kind, x, x_});
    back_.push_back([=, this, y = x_](const Value& dy) {
      const Value dx = c_.temp(dx_name, x.shape);
      c_.add(ActivationGrad{kind, saves_output(kind) ? y : x, dy, dx});
      return dx;
    });
  }

  void pool(Pool kind, const Window& over) {
    const PoolShape pool{image_, over};
    const Value x = x_;
    const std::string dx_name = named("dx");
    image_ = pool.out();
    next();
    const auto count = PoolCount::image;
    if (kind == Pool::max) c_.add(MaxPool{x, x_, pool});
    if (kind == Pool::average) c_.add(AvgPool{x, x_, pool, count});
    back_.push_back([=, this, y = x_](const Value& dy) {
      const Value dx = c_.temp(dx_name, x.shape);
      if (kind == Pool::max) c_.add(MaxPoolGrad{x, y, dy, dx, pool});
      if (kind == Pool::average) c_.add(AvgPoolGrad{dy, dx, pool, count});
      return dx;
    });
  }

  // Marks this place; a later add() joins it with the output of the layers after it. The gradient
  // of the place is the sum of both branches.
  void fork() {
    skip_ = x_;
    forked_ = true;  // the sum follows the gradient of the next layer's input
    back_.push_back([=, this, name = named("fork_dx")](const Value& dy) {
      const Value dx = c_.temp(name, dy.shape);
      c_.add(Add{{dy, skip_dy_}, dx});
      return dx;
    });
  }
  void add() {
    const Value x = x_, skip = skip_;
    next();
    c_.add(Add{{x, skip}, x_});
    back_.push_back([this](const Value& dy) { return skip_dy_ = dy; });
  }

  Case done() {
    // A last op keeps the result in plain memory, as a linear layer after it would.
    const Value y = c_.out("y", shape());
    c_.add(Activation{ActivationKind::tanh, x_, y});
    if (trains_) {
      Value dy = c_.temp("dx_last", shape());
      c_.add(ActivationGrad{ActivationKind::tanh, y, c_.in("dy", shape()), dy});
      for (auto back = back_.rbegin(); back != back_.rend(); ++back) dy = (*back)(dy);
    }
    return c_.done();
  }

 private:
  Shape shape() const { return {kItems, image_.numel()}; }
  std::string named(const char* what) const { return fmt::format("{}{}", what, layer_); }
  void next() { x_ = c_.temp(fmt::format("x{}", ++layer_), shape()); }

  static constexpr int64_t kItems = 3;
  CaseBuilder c_;
  DType dtype_;
  bool trains_;
  Image image_;
  Value x_;
  int layer_ = 0;
  Value skip_, skip_dy_;
  bool forked_ = false;
  std::vector<std::function<Value(const Value&)>> back_;
};

// Every pair of neighbours that these layers have in a typical network. `channels` do not fill a
// block of 8 or 16, except for 16 itself.
Case image_net(DType dtype, ActivationKind kind, int64_t channels, bool trains) {
  Net net(fmt::format("net of {} channels with {}{}", channels, name(kind),
                      trains ? "" : ", inference"),
          dtype, trains, {3, 9, 8});
  net.conv(channels, window(3, 1, 1));
  net.batch_norm();
  net.activation(kind);
  net.conv(channels, window(3, 2, 1));
  net.batch_norm();
  net.conv(channels + 5, window(1, 1, 0));
  net.activation(kind);
  net.pool(Pool::max, window(2, 1, 0));
  net.conv(channels, window(3, 1, 1));
  net.pool(Pool::average, window(3, 1, 1));
  net.batch_norm();
  net.pool(Pool::max, window(3, 2, 1));
  net.activation(kind);
  net.conv(2 * channels, window(3, 1, 1), channels);
  net.activation(kind);
  net.pool(Pool::average, window(2, 1, 0));
  return net.done();
}

// Residual blocks of both kinds, with the sum after the activation and before it, and pools that
// tile their images.
Case residual_net(DType dtype, const Image& in, int64_t channels, bool trains) {
  constexpr auto kRelu = ActivationKind::relu;
  Net net(fmt::format("residual net of {} channels{}", channels, trains ? "" : ", inference"),
          dtype, trains, in);
  net.conv(channels, window(3, 1, 1));
  net.batch_norm();
  net.activation(kRelu);
  net.pool(Pool::max, window(2, 2, 0));
  net.fork();
  net.conv(channels, window(3, 1, 1));
  net.batch_norm();
  net.activation(kRelu);
  net.add();
  net.fork();
  net.conv(channels, window(1, 1, 0));
  net.batch_norm();
  net.add();
  net.activation(kRelu);
  net.fork();
  net.conv(channels, window(3, 1, 1));
  net.add();
  net.activation(kRelu);
  net.fork();
  net.conv(channels, window(3, 1, 1));
  net.activation(kRelu);
  net.add();
  net.conv(channels, window(3, 1, 1));
  net.activation(kRelu);
  net.conv(channels, window(3, 1, 1));
  net.pool(Pool::max, window(2, 2, 0));
  return net.done();
}

// Norms after convolutions with strides, whose windows leave pixels out, and pools over odd images
// after the first and after a later convolution.
Case strided_net(DType dtype, int64_t channels) {
  Net net(fmt::format("strided net of {} channels", channels), dtype, true, {5, 39, 34});
  net.conv(channels, window(3, 2, 0));
  net.batch_norm();
  net.activation(ActivationKind::relu);
  net.pool(Pool::max, window(2, 2, 0));
  net.conv(channels + 3, window(2, 3, 1));
  net.batch_norm();
  net.activation(ActivationKind::relu);
  net.conv(channels, window(3, 1, 1));
  net.batch_norm();
  net.activation(ActivationKind::relu);
  net.pool(Pool::max, window(2, 2, 0));
  net.conv(channels, window(5, 1, 2));
  return net.done();
}

}  // namespace

std::vector<Case> image_net_cases(DType dtype) {
  std::vector<Case> all;
  for (const int64_t channels : {9, 33}) all.push_back(strided_net(dtype, channels));
  for (const bool trains : {true, false}) {
    all.push_back(residual_net(dtype, {3, 8, 12}, 16, trains));
    all.push_back(residual_net(dtype, {16, 4, 4}, 24, trains));
  }
  for (const bool trains : {true, false}) {
    for (const ActivationKind kind : kActivations) {
      all.push_back(image_net(dtype, kind, 12, trains));
    }
    for (const int64_t channels : {1, 7, 16, 17}) {
      all.push_back(image_net(dtype, ActivationKind::relu, channels, trains));
    }
  }
  return all;
}

}  // namespace ridgeline::test
