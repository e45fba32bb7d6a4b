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
  counter,    // one int64 of the same sort
};

// A weight that a layer wants: "weight", [out, in], how it starts.
struct ParamSpec {
  std::string suffix;
  Shape shape;
  Init init;
  Fans fans;
  ParamKind kind = ParamKind::weight;
};

// The most layers of a model, each layer of a recurrent stack counted. Deeper ones are a slip of
// the pen or a damaged file. A dropout mask keeps 12 bits for a layer's number.
constexpr int64_t kMostLayers = 4096;

// One layer's settings: immutable, without weights and without an input shape, so configs and
// models share it. Shapes here are of one sample; the values of a program carry the batch in front,
// with everything behind it flattened: [n, features].
class Layer {
 public:
  virtual ~Layer() = default;

  virtual std::string type() const = 0;  // as in the config: "linear"

  virtual int64_t depth() const { return 1; }  // layers in it: more in a recurrent stack

  // Not 0: the layer takes whole numbers in [0, this) where others take floats.
  virtual int64_t codes_below() const { return 0; }

  virtual bool joins() const { return false; }  // takes several inputs

  // Whether forward() may be appended twice to a step. Not if it follows statistics or keeps state.
  virtual bool computes_again() const { return true; }

  // The shape that leaves for the shape that enters; throws Error(usage) when they do not fit.
  virtual Shape output(const Shape& input) const = 0;
  virtual std::vector<ParamSpec> params(const Shape& input) const;  // none unless overridden
  // For several inputs. A layer that does not join refuses more than one.
  virtual Shape output_of(const std::vector<Shape>& inputs) const;

  // Appends ops that compute the output of values.x and returns it (values.x itself for a layer
  // that does nothing). backward() will see the same `values`.
  virtual Value forward(Builder& builder, LayerValues& values) const = 0;

  // Given dy, appends ops that write (not add to) values.grads and, if `needs_dx`, the derivative
  // by values.x, which it returns; without `needs_dx` what it returns is not looked at.
  virtual Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                         bool needs_dx) const = 0;
  // For several inputs: the derivative by each of values.xs that is needed. They may be one value,
  // and dy itself.
  virtual Values backward_of(Builder& builder, const LayerValues& values, const Value& dy,
                             const std::vector<bool>& needs_dx) const;

  virtual std::string to_toml() const = 0;  // { type = "linear", out = 10, ... }
};

using LayerPtr = std::shared_ptr<const Layer>;

// One layer's values in a program under construction.
struct LayerValues {
  int layer = 0;              // its number in the graph
  Shape input;                // of one sample, as the layer's output() was asked
  Value x, y;                 // [n, features]
  std::vector<Shape> inputs;  // of a layer that joins: all of them, the first as above
  Values xs;
  Values params;  // as Layer::params()
  Values grads;   // of params, absent for those that are not trained; when training
  Values saved;   // whatever else forward() keeps for backward()
  // Of a layer that does not compute again as a whole: backward() should compute again what it can,
  // rather than keep it.
  bool recompute = false;
};

}  // namespace ridgeline::nn
