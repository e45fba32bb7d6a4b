#include "ridgeline/nn/graph.h"

#include <fmt/format.h>

#include "ridgeline/nn/graph_config.h"

namespace ridgeline::nn {
namespace {

std::vector<std::vector<int>> chained(size_t count) {
  std::vector<std::vector<int>> inputs;
  for (size_t i = 0; i < count; ++i) inputs.push_back({int(i) - 1});  // kGraphInput is -1
  return inputs;
}

// A layer gets a name only if a layer other than the next reads it.
std::string name_of(int layer) {
  return layer == kGraphInput ? "input" : fmt::format("layer{}", layer);
}

}  // namespace

Graph::Graph(const std::vector<LayerPtr>& chain) : Graph(chain, chained(chain.size())) {}

Graph::Graph(const std::vector<LayerPtr>& layers, const std::vector<std::vector<int>>& inputs) {
  std::vector<bool> named(layers.size());
  const auto next = [&](size_t i) { return inputs[i] == std::vector<int>{int(i) - 1}; };
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const int input : inputs[i]) {
      if (!next(i) && input >= 0) named[size_t(input)] = true;
    }
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    layers_.push_back({layers[i], inputs[i], fmt::format("{}", i)});
    std::vector<std::string> words;
    for (const int input : inputs[i]) words.push_back(name_of(input));
    toml_.push_back(layer_toml(layers[i]->to_toml(), named[i] ? name_of(int(i)) : "",
                               next(i) ? std::vector<std::string>{} : words));
  }
}

std::string Graph::label(int layer) const {
  if (layer == kGraphInput) return "the input";
  const GraphLayer& each = layers_[size_t(layer)];
  return fmt::format("layer {} ({})", each.path, each.layer->type());
}

}  // namespace ridgeline::nn
