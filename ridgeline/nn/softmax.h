#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/graph.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// y = softmax(x), over the last dimension of a sample. It is the last layer of each member of an
// ensemble, whose probabilities a `mean` joins. It has no backward pass: the cross-entropy of a net
// that is trained has its own softmax.
class SoftmaxLayer final : public Layer {
 public:
  static LayerPtr read(ConfigTable& table);

  std::string type() const override { return "softmax"; }
  Shape output(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override { return "{ type = \"softmax\" }"; }
};

// Whether the net's outputs are probabilities already: the last layer is a softmax, or a mean of
// softmaxes.
bool gives_probabilities(const Graph& graph);

}  // namespace ridgeline::nn
