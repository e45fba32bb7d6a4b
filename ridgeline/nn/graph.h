#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "ridgeline/nn/layer.h"
#include "ridgeline/nn/loss.h"

namespace ridgeline::nn {

// Stands for the net's input among the inputs of a layer; layers are numbered from 0.
constexpr int kGraphInput = -1;

// A layer in its graph.
struct GraphLayer {
  LayerPtr layer;
  std::vector<int> inputs;  // numbers of layers before it, or kGraphInput
  std::string path;         // "3.0", the prefix of the names of its weights
  int weights_of = -1;      // an earlier layer whose weights it uses; -1: it has its own
};

// One of several outputs of a net, with a loss of its own.
struct Head {
  std::string name;  // of its layer
  int layer = -1;
  Loss loss;
  double weight = 1;   // of its loss in the sum that is trained
  std::string target;  // the field it learns; empty: the one at the same position in data.target
};

// The layers of a net in the order they run, and the inputs of each. The last one gives the net's
// output. A plain list of layers is a chain: each reads the one before. A net with heads ends in a
// concat of them, so its output is their outputs side by side.
class Graph {
 public:
  Graph() = default;
  Graph(const std::vector<LayerPtr>& chain);  // NOLINT: a list of layers is a graph
  Graph(std::initializer_list<LayerPtr> chain) : Graph(std::vector<LayerPtr>(chain)) {}
  // Each layer with its inputs. Paths are the layers' numbers.
  Graph(const std::vector<LayerPtr>& layers, const std::vector<std::vector<int>>& inputs);
  // `toml` has the elements of the config's array of layers, which is shorter if blocks repeat.
  Graph(std::vector<GraphLayer> layers, std::vector<std::string> toml, std::vector<Head> heads = {})
      : layers_(std::move(layers)), toml_(std::move(toml)), heads_(std::move(heads)) {}

  size_t size() const { return layers_.size(); }
  bool empty() const { return layers_.empty(); }
  const LayerPtr& operator[](size_t layer) const { return layers_[layer].layer; }
  const std::vector<GraphLayer>& layers() const { return layers_; }
  const std::vector<std::string>& toml() const { return toml_; }  // without the heads' concat
  const std::vector<Head>& heads() const { return heads_; }       // empty: a single output
  std::string label(int layer) const;  // "layer 3.0 (conv2d)", "the input"

 private:
  std::vector<GraphLayer> layers_;
  std::vector<std::string> toml_;
  std::vector<Head> heads_;
};

}  // namespace ridgeline::nn
