#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridgeline/nn/init.h"
#include "ridgeline/plan/program.h"

namespace ridgeline::nn {

class Builder;
struct LayerValues;

enum class ParamKind {
  weight,     // trained
  statistic,  // kept by the layer's own forward pass (batchnorm's running mean), not trained
  counter,    // one int64, kept in the same way
};

// A weight of a layer: "weight", [out, in], its initialisation.
struct ParamSpec {
  std::string suffix;
  Shape shape;
  Init init;
  Fans fans;
  ParamKind kind = ParamKind::weight;
};

// The most layers of a model, counting each layer of a recurrent stack. A deeper one is a typing
// error or a damaged file. A dropout mask keeps 12 bits for a layer's number.
constexpr int64_t kMostLayers = 4096;

// One layer's settings: immutable, without weights and without an input shape, so configs and
// models share it. Shapes here are of one sample; the values of a program have the batch in front
// and all other dimensions flattened: [n, features].
class Layer {
 public:
  virtual ~Layer() = default;

  virtual std::string type() const = 0;  // as in the config: "linear"

  virtual int64_t depth() const { return 1; }  // layers in it: more in a recurrent stack

  // If not 0, the layer takes integers in [0, this) instead of floats.
  virtual int64_t codes_below() const { return 0; }

  virtual bool joins() const { return false; }  // takes several inputs

  // Whether forward() may be appended twice to a step: not if it updates statistics or keeps state.
  virtual bool can_recompute() const { return true; }

  // Returns the output shape for an input shape; throws Error(usage) if the input does not fit.
  virtual Shape output(const Shape& input) const = 0;
  virtual std::vector<ParamSpec> params(const Shape& input) const;  // none unless overridden
  // Returns the output shape for several inputs; a layer that does not join refuses more than one.
  virtual Shape output_of(const std::vector<Shape>& inputs) const;

  // Appends ops that compute the output of values.x and returns it (values.x itself for a layer
  // that does nothing). backward() will see the same `values`.
  virtual Value forward(Builder& builder, LayerValues& values) const = 0;

  // Given dy, appends ops that write (not add to) values.grads and, if `needs_dx`, the derivative
  // by values.x, which it returns; without `needs_dx` the result is ignored.
  virtual Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                         bool needs_dx) const = 0;
  // Does so for several inputs and returns the derivative by each of values.xs that is needed. They
  // may be one value, and may be dy itself.
  virtual Values backward_of(Builder& builder, const LayerValues& values, const Value& dy,
                             const std::vector<bool>& needs_dx) const;

  virtual std::string to_toml() const = 0;  // { type = "linear", out = 10, ... }
};

using LayerPtr = std::shared_ptr<const Layer>;

// One layer's values in a program under construction.
struct LayerValues {
  int layer = 0;              // its number in the graph
  Shape input;                // of one sample, as passed to the layer's output()
  Value x, y;                 // [n, features]
  std::vector<Shape> inputs;  // for a layer that joins: the shapes of all inputs
  Values xs;
  Values params;  // as Layer::params()
  Values grads;   // of params, absent for those that are not trained; when training
  Values saved;   // whatever else forward() keeps for backward()
  // For a layer that does not recompute as a whole: backward() should recompute what it can instead
  // of saving it.
  bool recompute = false;
};

}  // namespace ridgeline::nn
