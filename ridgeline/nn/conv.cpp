#include "ridgeline/nn/conv.h"

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {

LayerPtr ConvLayer::read_layer(ConfigTable& table, Axes axes) {
  constexpr int64_t kMostChannels = int64_t{1} << 20;
  Settings settings;
  settings.axes = axes;
  settings.out = table.integer("out", std::nullopt, {1, kMostChannels});
  settings.window = read_window(table, axes, /*stride=*/1, /*dilated=*/true);
  settings.groups = table.integer("groups", 1, {1, kMostChannels});
  if (settings.out % settings.groups != 0) {
    table.fail("groups", fmt::format("{} does not divide out = {}", settings.groups, settings.out));
  }
  settings.bias = table.boolean("bias", true);
  settings.init = read_init(table, "init");
  if (!settings.bias && table.has("bias_init")) {
    table.fail("bias_init", "there is no bias to start");
  }
  settings.bias_init = read_init(table, "bias_init");
  return std::make_shared<ConvLayer>(settings);
}

std::string ConvLayer::type() const { return settings_.axes == Axes::two ? "conv2d" : "conv1d"; }

Conv2dShape ConvLayer::shape(const Shape& input) const {
  const Image in = as_image(input, settings_.axes);
  if (in.c % settings_.groups != 0) {
    throw_error(ErrorKind::usage,
                "its {} channels do not fall into {} groups; set groups to a "
                "divisor",
                in.c, settings_.groups);
  }
  slide_over(settings_.window, in, settings_.out, settings_.axes);
  return {in, settings_.out, settings_.window, settings_.groups};
}

Shape ConvLayer::output(const Shape& input) const {
  return as_shape(shape(input).out(), settings_.axes);
}

std::vector<ParamSpec> ConvLayer::params(const Shape& input) const {
  const Conv2dShape conv = shape(input);
  Shape weight = conv.weight();
  if (settings_.axes == Axes::one) weight = {weight[0], weight[1], weight[3]};
  const int64_t taps = weight.numel() / conv.k;  // products per output
  const Fans fans{taps, taps / conv.group_in() * conv.group_out()};
  std::vector<ParamSpec> params{{"weight", weight, settings_.init, fans}};
  if (settings_.bias) params.push_back({"bias", {conv.k}, settings_.bias_init, fans});
  return params;
}

Value ConvLayer::forward(Builder& builder, LayerValues& values) const {
  const Conv2dShape conv = shape(values.input);
  const Value y =
      builder.temp(fmt::format("x{}", values.layer + 1), {values.x.shape[0], conv.out().numel()});
  builder.add(
      Conv2d{values.x, values.params[0], settings_.bias ? values.params[1] : Value{}, y, conv});
  return y;
}

Value ConvLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                          bool needs_dx) const {
  const Conv2dShape conv = shape(values.input);
  const Conv2dGradW grad_w{values.x, dy, values.grads[0],
                           settings_.bias ? values.grads[1] : Value{}, conv};
  Value dx;
  if (needs_dx) dx = builder.like(fmt::format("dx{}", values.layer), values.x);
  if (builder.sum_follows()) builder.add(grad_w);
  if (needs_dx) builder.add(Conv2dGradX{dy, values.params[0], dx, conv});
  if (!builder.sum_follows()) builder.add(grad_w);
  return dx;
}

std::string ConvLayer::to_toml() const {
  std::string text =
      fmt::format("{{ type = \"{}\", out = {}, {}, groups = {}, bias = {}, init = {}", type(),
                  settings_.out, nn::to_toml(settings_.window, settings_.axes, true),
                  settings_.groups, settings_.bias, nn::to_toml(settings_.init));
  if (settings_.bias) text += fmt::format(", bias_init = {}", nn::to_toml(settings_.bias_init));
  return text + " }";
}

}  // namespace ridgeline::nn
