#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// groupnorm: normalises each sample over groups of neighbouring channels (its first dimension);
// weight and bias have one number per channel.
class GroupNormLayer final : public Layer {
 public:
  GroupNormLayer(int64_t groups, double epsilon, bool affine)
      : groups_(groups), epsilon_(epsilon), affine_(affine) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "groupnorm"; }
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  int64_t groups_;
  double epsilon_;
  bool affine_;
};

// rmsnorm: divides by the root of the mean square over the last `dims` dimensions of a sample (0:
// all of them); weight has their shape.
class RmsNormLayer final : public Layer {
 public:
  RmsNormLayer(int64_t dims, double epsilon, bool affine)
      : dims_(dims), epsilon_(epsilon), affine_(affine) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "rmsnorm"; }
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  int64_t dims_;
  double epsilon_;
  bool affine_;
};

}  // namespace ridgeline::nn
