#pragma once

#include <optional>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"
#include "ridgeline/ops/rearrange.h"

namespace ridgeline::nn {

// reshape: the same numbers as a sample of another shape. It has no op, since values are stored
// flat.
class ReshapeLayer final : public Layer {
 public:
  explicit ReshapeLayer(std::vector<int64_t> shape) : shape_(std::move(shape)) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "reshape"; }
  Shape output(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  std::vector<int64_t> shape_;  // one may be -1, which is inferred
};

// transpose: permutes the axes of a sample.
class TransposeLayer final : public Layer {
 public:
  explicit TransposeLayer(std::vector<int64_t> axes) : axes_(std::move(axes)) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "transpose"; }
  Shape output(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  std::vector<int64_t> axes_;
};

// slice: the positions [start, end) along an axis; negative ones count from the end.
class SliceLayer final : public Layer {
 public:
  SliceLayer(int64_t axis, int64_t start, std::optional<int64_t> end)
      : axis_(axis), start_(start), end_(end) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "slice"; }
  Shape output(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  Pad slice(const Shape& input) const;  // without values

  int64_t axis_, start_;
  std::optional<int64_t> end_;
};

// pad: adds numbers before and after each axis, in PyTorch's order: the last axis first.
class PadLayer final : public Layer {
 public:
  PadLayer(std::vector<int64_t> padding, double value)
      : padding_(std::move(padding)), value_(value) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "pad"; }
  Shape output(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  Pad pad(const Shape& input) const;  // without values
  int64_t before(int axis, int rank) const;
  int64_t after(int axis, int rank) const;

  std::vector<int64_t> padding_;  // a single number: on all sides of every axis but the channels
  double value_;
};

// upsample: enlarges images [c, h, w] or signals [c, w] by whole factors.
class UpsampleLayer final : public Layer {
 public:
  UpsampleLayer(int64_t factor_h, int64_t factor_w, UpsampleMode mode)
      : factor_h_(factor_h), factor_w_(factor_w), mode_(mode) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "upsample"; }
  Shape output(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  UpsampleShape shape(const Shape& input) const;

  int64_t factor_h_, factor_w_;
  UpsampleMode mode_;
};

}  // namespace ridgeline::nn
