#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// [a, b, ...] -> [a*b*...]. It has no op, since values are stored flat. A linear layer flattens by
// itself, so this layer only preserves the layer numbers of networks that have it.
class FlattenLayer final : public Layer {
 public:
  static LayerPtr read(ConfigTable&) { return std::make_shared<FlattenLayer>(); }

  std::string type() const override { return "flatten"; }
  Shape output(const Shape& input) const override { return {input.numel()}; }
  Value forward(Builder&, LayerValues& values) const override;
  Value backward(Builder&, const LayerValues&, const Value& dy, bool needs_dx) const override;
  std::string to_toml() const override { return "{ type = \"flatten\" }"; }
};

}  // namespace ridgeline::nn
