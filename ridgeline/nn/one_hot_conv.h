#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// onehot_conv1d: PyTorch's Conv1d over the one-hot columns of a sample's codes, [T] -> [out, T'],
// without making the columns. weight [out, symbols, kernel], bias [out]. The code `symbols` (and
// any above) stands for a column of zeros. It must be the first layer, where samples are still
// codes.
class OneHotConvLayer final : public Layer {
 public:
  struct Settings {
    int64_t symbols = 1, out = 1, kernel = 1;
    bool bias = true;
    Init init, bias_init;
  };
  explicit OneHotConvLayer(const Settings& settings) : settings_(settings) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "onehot_conv1d"; }
  int64_t codes_below() const override { return settings_.symbols + 1; }
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  Settings settings_;
};

}  // namespace ridgeline::nn
