#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"
#include "ridgeline/ops/activation.h"

namespace ridgeline::nn {

// y = f(x), element by element, for any shape. The kind is the layer's type: { type = "relu" }.
class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(ActivationKind kind) : kind_(kind) {}
  template <ActivationKind kind>
  static LayerPtr read(ConfigTable&) {
    return std::make_shared<ActivationLayer>(kind);
  }

  std::string type() const override { return name(kind_); }
  Shape output(const Shape& input) const override { return input; }
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  ActivationKind kind_;
};

}  // namespace ridgeline::nn
