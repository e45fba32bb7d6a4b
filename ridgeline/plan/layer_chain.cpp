#include "ridgeline/plan/layer_chain.h"

namespace ridgeline {
namespace {

// Walks a program and collects its layers. A call returns false, with the reason in `why`, if the
// op does not fit.
struct Collector {
  const Program& program;
  const std::function<const float*(const Value&)>& weights;
  LayerChain chain;
  std::string why;
  ValueId at = -1;   // the last value of the chain so far
  bool raw = false;  // the last layer has no activation yet

  bool refuse(const std::string& reason) {
    why = reason;
    return false;
  }
  static bool all_fp32(std::initializer_list<Value> values) {
    for (const Value& each : values) {
      if (each && each.dtype != DType::fp32) return false;
    }
    return true;
  }
  bool follows(const Value& x) { return x.id == at || refuse("layers are not one after another"); }
  const float* host(const Value& value) const { return value ? weights(value) : nullptr; }

  bool operator()(const Gather& op) {
    if (op.y.shape[0] != 1) return refuse("takes one sample at a time");
    if (op.y.dtype != DType::fp32) return refuse("takes numbers, no codes");
    chain.scale = op.set.dtype == DType::uint8 ? op.scale : 1;
    chain.shift = op.set.dtype == DType::uint8 ? op.shift : 0;
    at = op.y.id;
    return true;
  }
  bool operator()(const Linear& op) {
    if (!all_fp32({op.x, op.w, op.b, op.y})) return refuse("takes fp32 only");
    if (op.n() != 1) return refuse("takes one sample at a time");
    if (!follows(op.x)) return false;
    ChainLayer layer;
    layer.in = op.in();
    layer.out = op.out();
    layer.w = host(op.w);
    layer.b = host(op.b);
    if (layer.w == nullptr) return refuse("a weight is no parameter of the model");
    return add(layer, op.y);
  }
  bool operator()(const Rnn& op) {
    const RnnWeights& w = op.weights[0];
    if (!all_fp32({op.x, w.w_ih, w.w_hh, w.b_ih, w.b_hh, op.h0, op.y})) {
      return refuse("takes fp32 only");
    }
    if (op.shape.batch != 1 || op.shape.steps != 1) return refuse("takes one timestep at a time");
    if (op.shape.direction != Direction::forward || op.lengths || !op.h0) {
      return refuse("takes cells that carry their state forward");
    }
    if (!follows(op.x)) return false;
    ChainLayer layer;
    layer.cell = op.shape.cell;
    layer.in = op.shape.in;
    layer.out = op.shape.hidden;
    layer.w = host(w.w_ih);
    layer.b = host(w.b_ih);
    layer.w_hh = host(w.w_hh);
    layer.b_hh = host(w.b_hh);
    layer.h = op.h0;
    layer.c = op.c0;
    if (layer.w == nullptr || layer.w_hh == nullptr) {
      return refuse("a weight is no parameter of the model");
    }
    return add(layer, op.y);
  }
  bool add(const ChainLayer& layer, const Value& y) {
    if (chain.softmax) return refuse("a layer follows the softmax");
    chain.layers.push_back(layer);
    at = y.id;
    raw = !layer.cell;
    return true;
  }
  bool operator()(const Activation& op) {
    if (!follows(op.x)) return false;
    if (!raw || chain.softmax) return refuse("an activation follows no linear layer");
    chain.layers.back().activation = op.kind;
    raw = false;
    at = op.y.id;
    return true;
  }
  bool operator()(const Softmax& op) {
    if (!follows(op.x)) return false;
    if (chain.layers.empty()) return refuse("there is no layer");
    chain.softmax = true;
    at = op.y.id;
    return true;
  }
  bool operator()(const SelectTimestep& op) {
    if (op.steps != 1) return refuse("takes one timestep at a time");
    if (!follows(op.x)) return false;
    at = op.y.id;
    return true;
  }
  // Carries state to the next timestep, or copies the last layer's values to the outputs.
  bool operator()(const Copy& op) {
    if (op.from.dtype != op.to.dtype) return refuse("takes fp32 only");
    if (op.from.id == at) at = op.to.id;
    return true;
  }
  bool operator()(const Tick&) { return true; }
  template <typename Other>
  bool operator()(const Other& op) {
    return refuse(std::string(ridgeline::name(Op(op))) + " is no layer of a chain");
  }
};

}  // namespace

std::optional<LayerChain> find_layer_chain(const Program& program,
                                           const std::function<const float*(const Value&)>& weights,
                                           std::string& why_not) {
  Collector collector{program, weights, {}, {}, -1, false};
  for (const Op& op : program.ops) {
    if (std::visit(collector, op)) continue;
    why_not = collector.why;
    return std::nullopt;
  }
  if (collector.chain.layers.empty()) {
    why_not = "there is no layer";
    return std::nullopt;
  }
  return std::move(collector.chain);
}

}  // namespace ridgeline
