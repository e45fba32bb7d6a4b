#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// PyTorch's nn.Embedding: each of a sample's codes [T] becomes a row of weight [vocabulary, out],
// so [T] -> [T, out]. It must be the first layer, where samples are still integers.
class EmbeddingLayer final : public Layer {
 public:
  EmbeddingLayer(int64_t vocabulary, int64_t out, const Init& init)
      : vocabulary_(vocabulary), out_(out), init_(init) {}
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "embedding"; }
  int64_t codes_below() const override { return vocabulary_; }
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  int64_t vocabulary_, out_;
  Init init_;
};

}  // namespace ridgeline::nn
