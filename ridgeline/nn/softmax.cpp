#include "ridgeline/nn/softmax.h"

#include <algorithm>

#include "ridgeline/nn/builder.h"

namespace ridgeline::nn {

Shape SoftmaxLayer::output(const Shape& input) const { return input; }

Value SoftmaxLayer::forward(Builder& builder, LayerValues& values) const {
  const Value y = builder.like(fmt::format("x{}", values.layer + 1), values.x);
  if (labels_) {
    builder.add(Activation{ActivationKind::sigmoid, values.x, y});
    return y;
  }
  const int64_t classes = values.input[values.input.rank() - 1];
  const auto rows = [&](Value value) {
    value.shape = {value.shape.numel() / classes, classes};
    return value;
  };
  builder.add(Softmax{rows(values.x), rows(y)});
  return y;
}

Value SoftmaxLayer::backward(Builder&, const LayerValues& values, const Value&, bool) const {
  throw_error(ErrorKind::usage,
              "layer {} ({}): cannot be trained, because the loss has its own {}; leave it out",
              values.layer, type(), labels_ ? "sigmoid" : "softmax");
}

bool gives_probabilities(const Graph& graph) {
  if (graph.empty()) return false;
  const auto is_softmax = [&](int layer) {
    return layer >= 0 && dynamic_cast<const SoftmaxLayer*>(graph[size_t(layer)].get()) != nullptr;
  };
  const GraphLayer& last = graph.layers().back();
  return is_softmax(int(graph.size()) - 1) ||
         (last.layer->type() == "mean" && std::ranges::all_of(last.inputs, is_softmax));
}

}  // namespace ridgeline::nn
