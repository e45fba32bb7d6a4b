#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/nn/init.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// A named weight. Names are PyTorch's for an nn.Sequential of the same layers: "0.weight".
struct Param {
  std::string name;
  Init init;
  Fans fans;
  HostTensor value;  // fp64 in an fp64 run, fp32 in any other; int64 for a counter
  ParamKind kind = ParamKind::weight;

  bool trained() const { return kind == ParamKind::weight; }
};

// What a model of some layers consists of, worked out and checked without memory for a weight.
struct Outline {
  std::vector<Shape> shapes;  // shapes[i] enters layer i; the last leaves the model
  std::vector<std::pair<std::string, ParamSpec>> params;  // "0.weight"
  std::vector<size_t> first_param;                        // of each layer, and past the last
};
// As the constructor of Model.
Outline outline(const std::vector<LayerPtr>& layers, const Shape& input);

// Layers and their weights. Shapes are inferred and checked when it is built, before any weight is
// allocated.
class Model {
 public:
  // `input` is the shape of one sample, without the batch. Throws Error(usage) naming the layer's
  // number, its type and both shapes when they do not fit.
  Model(std::vector<LayerPtr> layers, const Shape& input, DType weights = DType::fp32);

  const Shape& input() const { return shapes_.front(); }
  const Shape& output() const { return shapes_.back(); }
  const std::vector<LayerPtr>& layers() const { return layers_; }
  const Shape& input_of(size_t layer) const { return shapes_[layer]; }
  std::vector<Param>& params() { return params_; }
  const std::vector<Param>& params() const { return params_; }
  // Which params belong to a layer: [first_param(i), first_param(i + 1)).
  size_t first_param(size_t layer) const { return first_param_[layer]; }
  int64_t parameter_count() const;  // of those that are trained

  // Fills every weight from its initialiser: a function of the seed, the parameter's number and the
  // element, so the same on every device and rank.
  void initialise(uint64_t seed);

 private:
  std::vector<LayerPtr> layers_;
  std::vector<Shape> shapes_;  // shapes_[i] enters layer i; the last leaves the model
  std::vector<Param> params_;
  std::vector<size_t> first_param_;
};

}  // namespace ridgeline::nn
