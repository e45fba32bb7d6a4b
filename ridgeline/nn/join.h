#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

enum class JoinKind { add, multiply, mean, concat };

// add, multiply, mean: element by element. An input with extents of 1, or with fewer dimensions
// than the largest one, is broadcast: [c] over the pixels of [c, h, w]. concat: one after the other
// along an axis of the sample.
class JoinLayer final : public Layer {
 public:
  explicit JoinLayer(JoinKind kind, int64_t axis = 0) : kind_(kind), axis_(axis) {}
  template <JoinKind kind>
  static LayerPtr read(ConfigTable& table) {
    return read_join(table, kind);
  }

  std::string type() const override;
  bool joins() const override { return true; }
  Shape output(const Shape& input) const override { return output_of({input}); }
  Shape output_of(const std::vector<Shape>& inputs) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  Values backward_of(Builder& builder, const LayerValues& values, const Value& dy,
                     const std::vector<bool>& needs_dx) const override;
  std::string to_toml() const override;

 private:
  static LayerPtr read_join(ConfigTable& table, JoinKind kind);
  int axis(const Shape& input) const;
  Value concat(Builder& builder, const LayerValues& values) const;
  Values concat_backward(Builder& builder, const LayerValues& values, const Value& dy,
                         const std::vector<bool>& needs_dx) const;
  Value multiply(Builder& builder, LayerValues& values, const Values& factors) const;

  JoinKind kind_;
  int64_t axis_;
};

// Returns the gradient of a value that several layers read: the sum of theirs, in this order.
Value add_gradients(Builder& builder, const Values& gradients, const std::string& name);

}  // namespace ridgeline::nn
