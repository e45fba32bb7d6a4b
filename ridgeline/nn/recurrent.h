#pragma once

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"
#include "ridgeline/ops/recurrent.h"

namespace ridgeline::nn {

struct RecurrentSettings {
  CellKind cell = CellKind::lstm;
  int64_t hidden = 1;
  int64_t layers = 1;
  bool both = false;     // a second pass from the end to the start, beside the first
  bool reverse = false;  // the only pass goes from the end to the start
  bool initial = false;  // begins with a state that is learnt, and not with zeros
  double dropout = 0;    // between the layers, when training
  bool bias = true;
};

// PyTorch's nn.RNN, nn.GRU and nn.LSTM, batch first: [T, in] -> [T, hidden], twice as wide with
// both directions. Weights have PyTorch's names, weight_ih_l0 to bias_hh_l1_reverse, gate orders
// and initial values. Where batches continue one another (LowerOptions::carry_state) each step
// begins with the state that the one before ended with; gradients stop there. With `initial` the
// layers have a state to begin with, h0_l0 and c0_l0 [directions, hidden], the same for all
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
  // Layers of the stack do, one by one: what is between them is kept, their gates are not.
  bool computes_again() const override { return false; }
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
  // Of layer `layer` of the stack, by the params of the whole.
  RnnDirections weights(const Values& params, int64_t layer) const;
  // Where the initial states of such a layer are among them.
  size_t initial_at(int64_t layer) const;
  Value begin(Builder& builder, const Value& param, const RnnShape& shape,
              const std::string& name) const;
  void add_begin_grad(Builder& builder, const Value& state_grad, const Value& grad,
                      const RnnShape& shape) const;
  RnnShape shape_of(const LayerValues& values, int64_t layer) const;
  // What such a layer reads, and what it keeps for its gradient, as the backward pass wants them:
  // kept or computed again.
  Value input_again(Builder& builder, const LayerValues& values, int64_t layer) const;
  Value reserve_again(Builder& builder, const LayerValues& values, int64_t layer,
                      const Value& x) const;

  RecurrentSettings s_;
};

}  // namespace ridgeline::nn
