#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"
#include "ridgeline/ops/activation.h"

namespace ridgeline::nn {

// y = f(x), element by element, for any shape. The kind is the layer's type: { type = "relu" },
// { type = "leaky_relu", slope = 0.01 }, { type = "elu", alpha = 1.0 }.
class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(ActivationKind kind) : ActivationLayer(kind, standard_parameter(kind)) {}
  ActivationLayer(ActivationKind kind, double parameter) : kind_(kind), parameter_(parameter) {}
  template <ActivationKind kind>
  static LayerPtr read(ConfigTable& table) {
    return std::make_shared<ActivationLayer>(kind, read_parameter(kind, table));
  }

  std::string type() const override { return name(kind_); }
  Shape output(const Shape& input) const override { return input; }
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  static double read_parameter(ActivationKind kind, ConfigTable& table);

  ActivationKind kind_;
  double parameter_;  // 0 unless the kind has one
};

}  // namespace ridgeline::nn
