#include "ridgeline/nn/one_hot_conv.h"

#include <fmt/format.h>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {

LayerPtr OneHotConvLayer::read(ConfigTable& table) {
  constexpr int64_t kMost = int64_t{1} << 20;
  Settings settings;
  settings.symbols = table.integer("symbols", std::nullopt, {1, 254});
  settings.out = table.integer("out", std::nullopt, {1, kMost});
  settings.kernel = table.integer("kernel", std::nullopt, {1, kMost});
  settings.bias = table.boolean("bias", true);
  settings.init = read_init(table, "init");
  if (!settings.bias && table.has("bias_init")) {
    table.fail("bias_init", "there is no bias to start");
  }
  settings.bias_init = read_init(table, "bias_init");
  return std::make_shared<OneHotConvLayer>(settings);
}

Shape OneHotConvLayer::output(const Shape& input) const {
  const int64_t steps = input.numel() - settings_.kernel + 1;
  if (steps < 1) {
    throw_error(ErrorKind::usage, "its kernel of {} does not fit a text of {} characters",
                settings_.kernel, input.numel());
  }
  return {settings_.out, steps};
}

std::vector<ParamSpec> OneHotConvLayer::params(const Shape&) const {
  const int64_t taps = settings_.symbols * settings_.kernel;
  const Fans fans{taps, settings_.out * settings_.kernel};
  std::vector<ParamSpec> params{
      {"weight", {settings_.out, settings_.symbols, settings_.kernel}, settings_.init, fans}};
  if (settings_.bias) params.push_back({"bias", {settings_.out}, settings_.bias_init, fans});
  return params;
}

Value OneHotConvLayer::forward(Builder& builder, LayerValues& values) const {
  if (is_float(values.x.dtype)) {
    throw_error(ErrorKind::usage,
                "layer {} (onehot_conv1d): must be the first layer, where samples are codes",
                values.layer);
  }
  const int64_t features = output(values.input).numel();
  const Value y = builder.temp(fmt::format("x{}", values.layer + 1), {values.x.shape[0], features});
  builder.add(
      OneHotConv1d{values.x, values.params[0], settings_.bias ? values.params[1] : Value{}, y});
  return y;
}

Value OneHotConvLayer::backward(Builder& builder, const LayerValues& values, const Value& dy,
                                bool) const {
  builder.add(
      OneHotConv1dGradW{values.x, dy, values.grads[0], settings_.bias ? values.grads[1] : Value{}});
  return {};
}

std::string OneHotConvLayer::to_toml() const {
  std::string text = fmt::format(
      "{{ type = \"onehot_conv1d\", symbols = {}, out = {}, kernel = {}, bias = {}, init = {}",
      settings_.symbols, settings_.out, settings_.kernel, settings_.bias,
      nn::to_toml(settings_.init));
  if (settings_.bias) text += fmt::format(", bias_init = {}", nn::to_toml(settings_.bias_init));
  return text + " }";
}

}  // namespace ridgeline::nn
