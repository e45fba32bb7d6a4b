#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"
#include "ridgeline/ops/window.h"

namespace ridgeline::nn {

// layernorm: normalises over the last `dims` dimensions of a sample (0: all of them); weight and
// bias have their shape.
class LayerNormLayer final : public Layer {
 public:
  LayerNormLayer(int64_t dims, double epsilon, bool affine)
      : dims_(dims), epsilon_(epsilon), affine_(affine) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "layernorm"; }
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  Shape normalised(const Shape& input) const;

  int64_t dims_;
  double epsilon_;
  bool affine_;
};

// batchnorm: normalises each channel (the sample's first dimension) over the batch and the rest
// of the sample. Keeps running statistics as PyTorch does, and uses them when not training.
class BatchNormLayer final : public Layer {
 public:
  BatchNormLayer(double epsilon, double momentum, bool affine)
      : epsilon_(epsilon), momentum_(momentum), affine_(affine) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "batchnorm"; }
  bool can_recompute() const override { return false; }
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  double epsilon_, momentum_;
  bool affine_;
};

}  // namespace ridgeline::nn
