#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"
#include "ridgeline/ops/unary.h"

namespace ridgeline::nn {

// y = f(x), element by element, for any shape. The kind is the layer's type: { type = "exp" }.
class UnaryLayer final : public Layer {
 public:
  explicit UnaryLayer(UnaryKind kind) : kind_(kind) {}
  template <UnaryKind kind>
  static LayerPtr read(ConfigTable&) {
    return std::make_shared<UnaryLayer>(kind);
  }

  std::string type() const override { return name(kind_); }
  Shape output(const Shape& input) const override { return input; }
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override { return "{ type = \"" + type() + "\" }"; }

 private:
  UnaryKind kind_;
};

}  // namespace ridgeline::nn
