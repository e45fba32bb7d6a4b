#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// Selects one timestep of a sequence, [T, features] -> [features]: PyTorch's y[:, at]. -1 is the
// last one. Configs call it "select".
class SelectTimestepLayer final : public Layer {
 public:
  explicit SelectTimestepLayer(int64_t at) : at_(at) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "select"; }
  Shape output(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  int64_t at_;
};

}  // namespace ridgeline::nn
