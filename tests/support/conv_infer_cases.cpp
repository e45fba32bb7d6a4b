#include <fmt/format.h>

#include <cmath>
#include <tuple>

#include "tests/support/cases.h"

namespace ridgeline::test {
namespace {

// A convolutional net value by value, as lowering for inference writes it.
class ConvNet {
 public:
  ConvNet(std::string name, int64_t samples, const Image& image)
      : c_(std::move(name), DType::fp32), n_(samples), image_(image) {
    x_ = c_.in("x0", {n_, image.numel()});
  }

  ConvNet& conv(int64_t k, const Window& window, int64_t groups = 1, bool bias = true) {
    Conv2dShape shape{image_, k, window, groups};
    const double sum = double(shape.group_in() * window.h.kernel * window.w.kernel);
    const Value w = c_.param(named("w"), shape.weight(), normal(1 / std::sqrt(sum)));
    const Value b = bias ? c_.param(named("b"), {k}, normal(0.5)) : Value{};
    return next(Conv2d{x_, w, b, made(shape.out()), shape});
  }
  ConvNet& conv(int64_t k, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
    const Slide slide{kernel, stride, kernel / 2};
    return conv(k, Window{slide, slide}, groups);
  }
  ConvNet& activation(ActivationKind kind) {
    return next(Activation{kind, x_, made(image_), standard_parameter(kind)});
  }
  ConvNet& relu() { return activation(ActivationKind::relu); }
  ConvNet& max_pool(const Slide& slide) {
    const PoolShape shape{image_, {slide, slide}};
    return next(MaxPool{x_, made(shape.out()), shape});
  }
  ConvNet& average_pool(const Slide& slide, PoolCount count) {
    const PoolShape shape{image_, {slide, slide}};
    return next(AvgPool{x_, made(shape.out()), shape, count});
  }
  ConvNet& global_pool() {
    const PoolShape shape{image_, {{image_.h}, {image_.w}}};
    return next(AvgPool{x_, made(shape.out()), shape, PoolCount::window});
  }
  // What is computed until now, for add() or at() later.
  std::pair<Value, Image> here() const { return {x_, image_}; }
  ConvNet& at(const std::pair<Value, Image>& place) {
    std::tie(x_, image_) = place;
    return *this;
  }
  ConvNet& add(const std::pair<Value, Image>& other) {
    return next(Add{{other.first, x_}, made(image_)});
  }
  Case done() {
    const Value y = c_.out("outputs", x_.shape);
    c_.add(Copy{x_, y});
    return c_.done();
  }

 private:
  std::string named(const char* what) { return fmt::format("{}{}", what, count_++); }
  Value made(const Image& image) {
    image_ = image;
    return c_.temp(named("x"), {n_, image.numel()});
  }
  template <typename Op>
  ConvNet& next(const Op& op) {
    x_ = op.y;
    c_.add(op);
    return *this;
  }

  CaseBuilder c_;
  int64_t n_;
  Image image_;
  Value x_;
  int count_ = 1;
};

Case depthwise_net(int64_t n) {
  ConvNet net(fmt::format("inference of {} by depthwise convolutions", n), n, {3, 9, 11});
  net.conv(16, 3)
      .relu()
      .conv(16, 3, 1, 16)
      .relu()
      .conv(35, 1)
      .activation(ActivationKind::hardswish);
  net.conv(35, 3, 2, 35).relu().conv(65, 1).conv(65, 5, 1, 65).activation(ActivationKind::silu);
  net.conv(65, {{3, 3, 1, 2}, {2, 3, 1, 2}}, 65).global_pool();
  return net.done();
}

Case residual_net(int64_t n) {
  ConvNet net(fmt::format("inference of {} by residual blocks", n), n, {5, 8, 7});
  net.conv(17, 3).relu();
  const auto first = net.here();
  net.conv(17, 3).relu().add(first);  // the activation before the sum
  const auto second = net.here();
  net.conv(40, 3, 2).relu().conv(40, 3);
  const auto body = net.here();
  net.at(second).conv(40, 1, 2).add(body).relu();  // a projection, and the activation after
  net.max_pool({3, 2, 1}).activation(ActivationKind::tanh);
  return net.done();
}

Case pooled_net(int64_t n) {
  ConvNet net(fmt::format("inference of {} by pools", n), n, {1, 14, 13});
  net.conv(6, 5).activation(ActivationKind::tanh).max_pool({2, 2});
  net.conv(16, {{3, 1, 0}, {3, 1, 0, 2}}, 1, false).activation(ActivationKind::sigmoid);
  net.average_pool({3, 2, 1}, PoolCount::image)
      .conv(8, 1)
      .average_pool({2, 1, 1}, PoolCount::window);
  return net.done();
}

// Signals of enough channels for Winograd, with channels that fill no vector, and a padded one.
Case signal_net(int64_t n) {
  ConvNet net(fmt::format("inference of {} by signals", n), n, {35, 1, 83});
  net.conv(64, {{}, {7}}).relu();
  net.conv(32, {{}, {3}}, 1, false);
  net.conv(33, {{}, {3}}).relu();
  net.conv(32, {{}, {5, 1, 2}}).relu().conv(32, {{}, {4}});
  return net.done();
}

}  // namespace

std::vector<Case> conv_inference_cases() {
  std::vector<Case> all;
  for (const int64_t n : {1, 3, 9}) {
    for (const auto& make : {depthwise_net, residual_net, pooled_net, signal_net}) {
      all.push_back(make(n));
    }
  }
  return all;
}

}  // namespace ridgeline::test
