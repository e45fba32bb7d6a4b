#pragma once

#include "ridgeline/nn/image.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// conv2d and conv1d: weight [out, c/groups, kernel h, kernel w] (conv1d: [out, c/groups, kernel]),
// bias [out]. The samples are images, see as_image.
class ConvLayer final : public Layer {
 public:
  struct Settings {
    Axes axes = Axes::two;
    int64_t out = 1;
    Window window;
    int64_t groups = 1;
    bool bias = true;
    Init init, bias_init;
  };
  explicit ConvLayer(const Settings& settings) : settings_(settings) {}

  template <Axes axes>
  static LayerPtr read(ConfigTable& table) {
    return read_layer(table, axes);
  }

  std::string type() const override;
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  static LayerPtr read_layer(ConfigTable& table, Axes axes);
  Conv2dShape shape(const Shape& input) const;  // throws Error(usage) when it does not fit

  Settings settings_;
};

}  // namespace ridgeline::nn
