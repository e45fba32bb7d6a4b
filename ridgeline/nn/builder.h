#pragma once

#include <string>

#include "ridgeline/nn/lower.h"

namespace ridgeline::nn {

// Appends the ops of layers to lower()'s program, and records the layer of each op.
class Builder {
 public:
  Builder(Lowered& lowered, const LowerOptions& options) : lowered_(lowered), options_(options) {}

  const LowerOptions& options() const { return options_; }
  bool training() const { return options_.mode == Mode::train; }
  DType dtype() const { return storage(options_.precision); }  // of activations

  void enter(int layer) { layer_ = layer; }  // -1: data, loss or counters
  void add(Op op) {
    if (again_) recomputed_.push_back(lowered_.program.ops.size());
    lowered_.program.add(std::move(op));
    lowered_.op_layer.push_back(layer_);
  }
  Value temp(std::string name, const Shape& shape) { return temp(std::move(name), dtype(), shape); }
  Value temp(std::string name, DType dtype, const Shape& shape) {
    if (again_) name += ".again";
    return lowered_.program.add_value(std::move(name), dtype, shape);
  }
  Value like(std::string name, const Value& value) { return temp(std::move(name), value.shape); }

  // While set, ops recompute what the forward pass has computed.
  void set_again(bool again) { again_ = again; }
  const std::vector<size_t>& recomputed() const { return recomputed_; }  // such ops, in order

  // Returns state that is carried from step to step, zero at the start: its value when this step
  // began.
  Value carried(std::string name, const Shape& shape) {
    const Value value = lowered_.program.add_value(name, dtype(), shape, Role::state);
    lowered_.carried.push_back({std::move(name), value, {}});
    return value;
  }
  // Returns a temporary for the new value of such a state. The end of the program copies it into
  // the state, because the backward pass still reads the old value.
  Value next(const Value& state) {
    for (Lowered::CarriedState& each : lowered_.carried) {
      if (each.value.id == state.id) return each.next = like(each.name + ".next", state);
    }
    return {};
  }
  // Set by lower(): the derivative by the layer's input will be added to another, so the op that
  // writes it must come last, for kernels that accumulate it where it is computed.
  void set_sum_follows(bool follows) { sum_follows_ = follows; }
  bool sum_follows() const { return sum_follows_; }

  // The number of timesteps of each sample, if they differ: [n] int32.
  Value lengths() const { return lowered_.batch_lengths; }

  Value tick() const { return lowered_.tick; }
  Value step() {  // created on first use
    if (!lowered_.step) {
      lowered_.step = lowered_.program.add_value("step", DType::int64, {1}, Role::input);
    }
    return lowered_.step;
  }

 private:
  Lowered& lowered_;
  const LowerOptions& options_;
  int layer_ = -1;
  bool sum_follows_ = false, again_ = false;
  std::vector<size_t> recomputed_;
};

}  // namespace ridgeline::nn
