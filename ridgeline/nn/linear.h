#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// y = x . w^T + b over the flattened sample, or over each timestep of a sequence: weight [out, in],
// bias [out].
class LinearLayer final : public Layer {
 public:
  explicit LinearLayer(int64_t out, bool bias = true, const Init& init = {},
                       const Init& bias_init = {}, bool per_step = false)
      : out_(out), bias_(bias), init_(init), bias_init_(bias_init), per_step_(per_step) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "linear"; }
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  int64_t out_;
  bool bias_;
  Init init_, bias_init_;
  bool per_step_;  // [T, in] -> [T, out]
};

}  // namespace ridgeline::nn
