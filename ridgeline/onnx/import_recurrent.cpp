#include <algorithm>

#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {
namespace {

struct Cell {
  const char* op;
  const char* layer;
  std::vector<int64_t> order;  // where our gates are among ONNX's
};

// LSTM: ONNX has i, o, f, c and we have i, f, g, o. GRU: z, r, h and r, z, n.
const Cell& cell_of(const std::string& op) {
  static const Cell kCells[] = {
      {"RNN", "rnn", {0}}, {"GRU", "gru", {1, 0, 2}}, {"LSTM", "lstm", {0, 2, 3, 1}}};
  return *std::ranges::find(kCells, op, &Cell::op);
}

// The gates of one direction, in our order: `size` numbers each, from `first` on.
std::vector<float> gates(const Constant& from, int64_t first, int64_t size, const Cell& cell) {
  std::vector<float> made;
  for (const int64_t gate : cell.order) {
    const auto begin = from.floats.begin() + first + gate * size;
    made.insert(made.end(), begin, begin + size);
  }
  return made;
}

std::string read_activation(Importer& in, const Cell& cell, int64_t directions) {
  const auto found = in.node().attributes.find("activations");
  const std::vector<std::string> usual =
      cell.layer == std::string("rnn")   ? std::vector<std::string>{"Tanh"}
      : cell.layer == std::string("gru") ? std::vector<std::string>{"Sigmoid", "Tanh"}
                                         : std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"};
  if (found == in.node().attributes.end()) return "tanh";
  std::vector<std::string> wanted;
  for (int64_t d = 0; d < directions; ++d) wanted.insert(wanted.end(), usual.begin(), usual.end());
  if (found->second.strings == wanted) return "tanh";
  const auto relu = [](const std::string& name) { return name == "Relu"; };
  if (cell.layer == std::string("rnn") && std::ranges::all_of(found->second.strings, relu)) {
    return "relu";
  }
  in.refuse("its activations are not those of this layer");
}

void check_state(Importer& in, size_t input, const char* what) {
  if (!in.has(input)) return;
  const ConstantPtr state = in.known(input);
  if (!state->all_zero()) in.refuse(fmt::format("{} is not zero", what));
}

void check_lengths(Importer& in, int64_t steps) {
  if (!in.has(4)) return;
  const ConstantPtr lengths = in.known(4);
  for (const int64_t each : lengths->ints) {
    if (each != steps) in.refuse("sequence_lens holds lengths of their own");
  }
}

void check_kind(Importer& in, const Cell& cell, const ConstantPtr& bias, int64_t steps,
                int64_t hidden) {
  const Node& node = in.node();
  if (node.has("clip")) in.refuse("clips its gates");
  if (node.integer("input_forget", 0) != 0) in.refuse("couples its input and forget gates");
  if (in.has(7)) in.refuse("has peepholes");
  if (cell.layer != std::string("gru") || node.integer("linear_before_reset", 0) != 0) return;
  // One step from a state of zero is the same both ways where the state has no bias.
  bool same = steps == 1;
  for (int64_t i = 5 * hidden; bias && i < 6 * hidden; ++i) {
    same = same && bias->floats[size_t(i)] == 0;
  }
  if (!same) {
    in.refuse(
        "linear_before_reset is 0: its reset gate acts before the product; ours, as "
        "PyTorch's, acts after it");
  }
}

}  // namespace

// x [T, N, in], W [D, gates*H, in], R [D, gates*H, H], B [D, 2*gates*H]; Y [T, D, N, H]. With
// layout 1 the batch comes first in x and Y.
void import_recurrent(Importer& in) {
  const Node& node = in.node();
  const Cell& cell = cell_of(node.op);
  const ConstantPtr w = in.require_known(1), r = in.require_known(2);
  const ConstantPtr bias = in.has(3) ? in.require_known(3) : nullptr;
  const View view = in.take(0).view;
  const bool batch_first = node.integer("layout", 0) == 1;
  if (view.dims.size() != 3 || !view.in_order() || view.batch_axis != (batch_first ? 0u : 1u)) {
    in.refuse("its input is not [timesteps, N, features] (or [N, timesteps, features], layout 1)");
  }
  const std::string direction = node.text("direction", "forward");
  if (direction == "reverse") in.refuse("runs in reverse only");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const int64_t steps = view.dims[batch_first ? 1 : 0], features = view.dims[2];
  const auto count = int64_t(cell.order.size());
  const int64_t hidden = r->dims.size() == 3 ? r->dims[2] : 0, rows = count * hidden;
  if (hidden < 1 || w->dims != std::vector<int64_t>{directions, rows, features} ||
      r->dims != std::vector<int64_t>{directions, rows, hidden} ||
      (bias && bias->dims != std::vector<int64_t>{directions, 2 * rows})) {
    in.refuse("its weights do not fit its input");
  }
  check_kind(in, cell, bias, steps, hidden);
  check_lengths(in, steps);
  check_state(in, 5, "initial_h");
  check_state(in, 6, "initial_c");
  if (in.gives(2)) in.refuse("its third output, the last cell state, is not given here");
  if (in.gives(1) && directions == 2) {
    in.refuse("its last state of two directions is read, which no layer gives");
  }
  Draft draft;
  draft.type = cell.layer;
  draft.set("hidden", hidden);
  draft.set("bidirectional", directions == 2);
  const std::string activation = read_activation(in, cell, directions);
  if (draft.type == "rnn") draft.set("activation", "\"" + activation + "\"");
  draft.set("bias", bias != nullptr);
  for (int64_t d = 0; d < directions; ++d) {
    const std::string end = d == 1 ? "_l0_reverse" : "_l0";
    draft.weights.push_back(
        {"weight_ih" + end, gates(*w, d * rows * features, hidden * features, cell)});
    draft.weights.push_back(
        {"weight_hh" + end, gates(*r, d * rows * hidden, hidden * hidden, cell)});
    if (!bias) continue;
    draft.weights.push_back({"bias_ih" + end, gates(*bias, d * 2 * rows, hidden, cell)});
    draft.weights.push_back({"bias_hh" + end, gates(*bias, (d * 2 + 1) * rows, hidden, cell)});
  }
  in.shape_input({steps, features});
  in.add(std::move(draft));
  View y;
  y.dims = batch_first ? std::vector<int64_t>{kBatch, steps, directions, hidden}
                       : std::vector<int64_t>{steps, directions, kBatch, hidden};
  y.batch_axis = batch_first ? 0 : 2;
  in.give(y);
  if (!in.gives(1)) return;
  Draft select;
  select.type = "select";
  select.set("at", int64_t{-1});
  in.add(std::move(select));
  View last;
  last.dims = batch_first ? std::vector<int64_t>{kBatch, 1, hidden}
                          : std::vector<int64_t>{1, kBatch, hidden};
  last.batch_axis = batch_first ? 0 : 1;
  in.give(last, 1);
}

}  // namespace ridgeline::onnx
