#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// In training, zeroes each element with probability p and scales the rest by 1 / (1 - p).
// Otherwise, and for p = 0, it has no op.
class DropoutLayer final : public Layer {
 public:
  explicit DropoutLayer(double p) : p_(p) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "dropout"; }
  Shape output(const Shape& input) const override { return input; }
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  double p_;
};

}  // namespace ridgeline::nn
