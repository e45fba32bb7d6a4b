#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/nn/graph.h"
#include "ridgeline/nn/init.h"

namespace ridgeline::nn {

// A named weight. Names are PyTorch's for an nn.Sequential of the same layers: "0.weight", and
// "3.0.weight" in a block.
struct Param {
  std::string name;
  Init init;
  Fans fans;
  HostTensor value;  // fp64 in an fp64 run, fp32 in any other; int64 for a counter
  ParamKind kind = ParamKind::weight;

  bool trained() const { return kind == ParamKind::weight; }
};

// The shapes and weights of a model, computed and checked without memory for the weights.
struct Outline {
  std::vector<Shape> outputs;                             // of each layer
  std::vector<std::pair<std::string, ParamSpec>> params;  // "0.weight"
  std::vector<size_t> first_param;                        // of each layer, and past the last
};
// Throws like the constructor of Model.
Outline outline(const Graph& graph, const Shape& input);

// Layers and their weights. Shapes are inferred and checked when it is built, before any weight is
// allocated.
class Model {
 public:
  // `input` is the shape of one sample, without the batch. Throws Error(usage) with the layer's
  // number, its type and both shapes if they do not fit.
  Model(Graph graph, const Shape& input, DType weights = DType::fp32);

  const Shape& input() const { return input_; }
  const Shape& output() const { return outputs_.back(); }
  const Graph& graph() const { return graph_; }
  const std::vector<LayerPtr>& layers() const { return layers_; }  // of the graph, in order
  // The numbers of the layers that a layer reads, and the shape of its first input.
  const std::vector<int>& inputs_of(size_t layer) const { return graph_.layers()[layer].inputs; }
  const Shape& input_of(size_t layer) const { return output_of(inputs_of(layer)[0]); }
  const Shape& output_of(int layer) const {
    return layer == kGraphInput ? input_ : outputs_[size_t(layer)];
  }
  std::vector<Param>& params() { return params_; }
  const std::vector<Param>& params() const { return params_; }
  // The params of a layer are [first_param(i), first_param(i + 1)). A layer that uses those of
  // another has none of its own.
  size_t first_param(size_t layer) const { return first_param_[layer]; }
  // The layer whose params a layer uses: itself, unless it shares another's.
  size_t weights_of(size_t layer) const {
    const int owner = graph_.layers()[layer].weights_of;
    return owner >= 0 ? size_t(owner) : layer;
  }
  int64_t parameter_count() const;  // of those that are trained

  // Initialises every weight as a function of the seed, the parameter's number and the element, so
  // it is the same on every device and rank.
  void initialise(uint64_t seed);

 private:
  Graph graph_;
  std::vector<LayerPtr> layers_;
  Shape input_;
  std::vector<Shape> outputs_;
  std::vector<Param> params_;
  std::vector<size_t> first_param_;
};

}  // namespace ridgeline::nn
