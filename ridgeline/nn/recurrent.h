#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"
#include "ridgeline/ops/recurrent.h"

namespace ridgeline::nn {

struct RecurrentSettings {
  CellKind cell = CellKind::lstm;
  int64_t hidden = 1;
  int64_t layers = 1;
  bool both = false;     // bidirectional: a second pass runs from the end to the start
  bool reverse = false;  // the only pass runs from the end to the start
  bool initial = false;  // the initial state is learnt instead of zero
  double dropout = 0;    // between the layers, when training
  bool bias = true;
};

// PyTorch's nn.RNN, nn.GRU and nn.LSTM, batch first: [T, in] -> [T, hidden], twice as wide with
// both directions. Weights have PyTorch's names, weight_ih_l0 to bias_hh_l1_reverse, gate orders
// and initial values. If batches continue one another (LowerOptions::carry_state), each step
// begins with the final state of the step before; gradients stop there. With `initial` the
// layers have learnt initial states, h0_l0 and c0_l0 [directions, hidden], the same for all
// samples.
class RecurrentLayer final : public Layer {
 public:
  explicit RecurrentLayer(const RecurrentSettings& settings) : s_(settings) {}
  static LayerPtr read_rnn(ConfigTable& table);
  static LayerPtr read_gru(ConfigTable& table);
  static LayerPtr read_lstm(ConfigTable& table);

  std::string type() const override;
  const RecurrentSettings& settings() const { return s_; }
  int64_t depth() const override { return s_.layers; }
  // The layers of the stack recompute one by one: the values between them are kept, their gates are
  // not.
  bool can_recompute() const override { return false; }
  Shape output(const Shape& input) const override;
  std::vector<ParamSpec> params(const Shape& input) const override;
  Value forward(Builder& builder, LayerValues& values) const override;
  Value backward(Builder& builder, const LayerValues& values, const Value& dy,
                 bool needs_dx) const override;
  std::string to_toml() const override;

 private:
  int64_t directions() const { return s_.both ? 2 : 1; }
  int64_t width_into(int64_t layer, int64_t in) const {
    return layer == 0 ? in : directions() * s_.hidden;
  }
  // Returns the weights of layer `layer` of the stack, from the params of the whole stack.
  RnnDirections weights(const Values& params, int64_t layer) const;
  // Returns the index of that layer's initial states in the params.
  size_t initial_at(int64_t layer) const;
  Value begin(Builder& builder, const Value& param, const RnnShape& shape,
              const std::string& name) const;
  void add_begin_grad(Builder& builder, const Value& state_grad, const Value& grad,
                      const RnnShape& shape) const;
  RnnShape shape_of(const LayerValues& values, int64_t layer) const;
  // Return that layer's input, and its reserve, for the backward pass: either kept or
  // recomputed.
  Value input_again(Builder& builder, const LayerValues& values, int64_t layer) const;
  Value reserve_again(Builder& builder, const LayerValues& values, int64_t layer,
                      const Value& x) const;

  RecurrentSettings s_;
};

}  // namespace ridgeline::nn
