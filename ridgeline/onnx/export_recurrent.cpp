#include "ridgeline/onnx/exporter.h"

namespace ridgeline::onnx {
namespace {

// The positions of ONNX's gates among ours. LSTM: i, o, f, c of i, f, g, o. GRU: z, r, h of r, z,
// n.
Ints gate_order(const std::string& type) {
  if (type == "lstm") return {0, 3, 1, 2};
  return type == "gru" ? Ints{1, 0, 2} : Ints{0};
}

void append(std::vector<float>& to, const std::vector<float>& from, const Ints& order) {
  const size_t size = from.size() / order.size();
  for (const int64_t gate : order) {
    const auto begin = from.begin() + gate * int64_t(size);
    to.insert(to.end(), begin, begin + int64_t(size));
  }
}

}  // namespace

// Broadcasts a state [D, H] to each sample of x_, which is [T, N, features]: [D, N, H].
std::string Exporter::initial_state(const std::string& suffix) {
  const Ints shape = dims(suffix);
  if (graph_.opset() < 8) {
    throw_error(ErrorKind::usage, "layer {}: an initial state needs --opset 8 or newer", path());
  }
  const std::string state =
      graph_.weight(path() + "." + suffix, {shape[0], 1, shape[1]}, values(suffix));
  const std::string all = graph_.node("Shape", {x_});
  const std::string batch = graph_.node("Gather", {all, graph_.ints({1})}, {{"axis", int64_t{0}}});
  const std::string wanted = graph_.node(
      "Concat", {graph_.ints({shape[0]}), batch, graph_.ints({shape[1]})}, {{"axis", int64_t{0}}});
  return graph_.node("Expand", {state, wanted});
}

// ONNX Runtime only supports sequences with the timesteps first.
void Exporter::recurrent(nn::ConfigTable& table, const std::string& type) {
  const int64_t hidden = table.integer("hidden", std::nullopt), steps = shape_[0];
  const int64_t directions = table.boolean("bidirectional", false) ? 2 : 1;
  const int64_t layers = table.integer("layers", 1);
  const Ints order = gate_order(type);
  const auto rows = int64_t(order.size()) * hidden;
  const std::string op = type == "lstm" ? "LSTM" : type == "gru" ? "GRU" : "RNN";
  Attributes attributes{{"hidden_size", hidden}};
  if (directions == 2) attributes.emplace_back("direction", std::string("bidirectional"));
  if (table.boolean("reverse", false)) attributes.emplace_back("direction", std::string("reverse"));
  if (type == "gru") attributes.emplace_back("linear_before_reset", int64_t{1});
  if (type == "rnn" && table.text("activation", "tanh") == "relu") {
    attributes.emplace_back("activations", std::vector<std::string>(size_t(directions), "Relu"));
  }
  x_ = graph_.node("Transpose", {x_}, {{"perm", Ints{1, 0, 2}}});
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<float> w, r, b;
    int64_t in = 0;
    for (int64_t d = 0; d < directions; ++d) {
      const std::string end = fmt::format("_l{}{}", layer, d == 1 ? "_reverse" : "");
      in = dims("weight_ih" + end)[1];
      append(w, values("weight_ih" + end), order);
      append(r, values("weight_hh" + end), order);
      if (!has("bias_ih" + end)) continue;
      append(b, values("bias_ih" + end), order);
      append(b, values("bias_hh" + end), order);
    }
    const auto named = [&](const char* what) {
      return fmt::format("{}.{}_l{}", path(), what, layer);
    };
    std::vector<std::string> inputs{x_, graph_.weight(named("W"), {directions, rows, in}, w),
                                    graph_.weight(named("R"), {directions, rows, hidden}, r)};
    if (!b.empty()) inputs.push_back(graph_.weight(named("B"), {directions, 2 * rows}, b));
    if (!lengths_.empty()) {
      inputs.resize(4);
      inputs.push_back(lengths_);
    }
    if (has(fmt::format("h0_l{}", layer))) {
      inputs.resize(5);
      inputs.push_back(initial_state(fmt::format("h0_l{}", layer)));
      if (type == "lstm") inputs.push_back(initial_state(fmt::format("c0_l{}", layer)));
    }
    x_ = graph_.node(op, inputs, attributes);
    // [T, D, N, H] -> [T, N, D*H]
    x_ = graph_.node("Transpose", {x_}, {{"perm", Ints{0, 2, 1, 3}}});
    x_ = graph_.node("Reshape", {x_, graph_.ints({steps, -1, directions * hidden})});
  }
  x_ = graph_.node("Transpose", {x_}, {{"perm", Ints{1, 0, 2}}});
  shape_ = {steps, directions * hidden};
}

}  // namespace ridgeline::onnx
