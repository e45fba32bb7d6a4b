#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/graph.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// y = softmax(x), over the last dimension of a sample, or (output_sigmoid) y = sigmoid(x), for a
// net whose outputs are labels of their own. It is the last layer of each member of an ensemble,
// whose probabilities a `mean` joins. It has no backward pass: the cross-entropy of a net that is
// trained has its own softmax or sigmoid.
class SoftmaxLayer final : public Layer {
 public:
  explicit SoftmaxLayer(bool labels = false) : labels_(labels) {}
  template <bool labels>
  static LayerPtr read(ConfigTable&) {
    return std::make_shared<SoftmaxLayer>(labels);
  }

  std::string type() const override { return labels_ ? "output_sigmoid" : "softmax"; }
  Shape output(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override { return "{ type = \"" + type() + "\" }"; }

 private:
  bool labels_;
};

// Whether the net's outputs are probabilities already: the last layer is a SoftmaxLayer, or a
// mean of such layers.
bool gives_probabilities(const Graph& graph);

}  // namespace ridgeline::nn
