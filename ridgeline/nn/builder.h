#pragma once

#include <string>

#include "ridgeline/nn/lower.h"

namespace ridgeline::nn {

// What layers append to: lower()'s program, with the layer that each op belongs to.
class Builder {
 public:
  Builder(Lowered& lowered, const LowerOptions& options) : lowered_(lowered), options_(options) {}

  const LowerOptions& options() const { return options_; }
  bool training() const { return options_.mode == Mode::train; }
  DType dtype() const { return storage(options_.precision); }  // of activations

  void enter(int layer) { layer_ = layer; }  // -1: data, loss or counters
  void add(Op op) {
    lowered_.program.add(std::move(op));
    lowered_.op_layer.push_back(layer_);
  }
  Value temp(std::string name, const Shape& shape) {
    return lowered_.program.add_value(std::move(name), dtype(), shape);
  }
  Value temp(std::string name, DType dtype, const Shape& shape) {
    return lowered_.program.add_value(std::move(name), dtype, shape);
  }
  Value like(std::string name, const Value& value) { return temp(std::move(name), value.shape); }

  Value tick() const { return lowered_.tick; }
  Value step() {  // made when first asked for
    if (!lowered_.step) {
      lowered_.step = lowered_.program.add_value("step", DType::int64, {1}, Role::input);
    }
    return lowered_.step;
  }

 private:
  Lowered& lowered_;
  const LowerOptions& options_;
  int layer_ = -1;
};

}  // namespace ridgeline::nn
