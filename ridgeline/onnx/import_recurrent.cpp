#include <algorithm>

#include "ridgeline/onnx/importer.h"
#include "ridgeline/ops/join.h"

namespace ridgeline::onnx {
namespace {

struct Cell {
  const char* op;
  const char* layer;
  std::vector<int64_t> order;  // positions of our gates among ONNX's
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

}  // namespace

std::string read_recurrent_activation(Importer& in, int64_t directions) {
  const Cell& cell = cell_of(in.node().op);
  const auto found = in.node().attributes.find("activations");
  const std::vector<std::string> usual =
      cell.layer == std::string("rnn")   ? std::vector<std::string>{"Tanh"}
      : cell.layer == std::string("gru") ? std::vector<std::string>{"Sigmoid", "Tanh"}
                                         : std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"};
  if (found == in.node().attributes.end()) return "tanh";
  std::vector<std::string> wanted;
  for (int64_t d = 0; d < directions; ++d) wanted.insert(wanted.end(), usual.begin(), usual.end());
  if (found->second.strings == wanted) return "tanh";
  wanted.assign(size_t(directions), "Relu");
  if (cell.layer == std::string("rnn") && found->second.strings == wanted) return "relu";
  in.refuse("its activations are not those of this layer");
}

namespace {

// Returns the state [directions, hidden] with which every sample begins; empty: zeros.
std::vector<float> read_state(Importer& in, size_t input, int64_t directions, int64_t hidden) {
  if (!in.has(input)) return {};
  const ConstantPtr repeated = in.repeated(input);
  const ConstantPtr state = repeated ? repeated : in.known(input);
  if (state->all_zero()) return {};
  const int64_t each = directions * hidden;
  const int64_t batch = state->uniform ? 1 : state->numel() / each;
  if (batch < 1 || (!state->uniform && batch * each != state->numel())) {
    in.refuse("its initial state does not fit");
  }
  const bool batch_first = in.node().integer("layout", 0) == 1;
  std::vector<float> made;
  for (int64_t d = 0; d < directions; ++d) {
    for (int64_t j = 0; j < hidden; ++j) {
      for (int64_t n = 0; n < batch; ++n) {
        const int64_t row = batch_first ? n * directions + d : d * batch + n;
        const auto value = float(state->number(row * hidden + j));
        if (n == 0) made.push_back(value);
        if (value != made.back()) in.refuse("its samples begin with states of their own");
      }
    }
  }
  return made;
}

// Returns the number of timesteps of all sequences.
int64_t read_length(Importer& in, int64_t steps) {
  if (!in.has(4)) return steps;
  const ConstantPtr repeated = in.repeated(4);
  const ConstantPtr lengths = repeated ? repeated : in.known(4);
  if (!lengths->integer || lengths->ints.empty()) in.refuse("sequence_lens holds no lengths");
  const int64_t length = lengths->ints[0];
  for (const int64_t each : lengths->ints) {
    if (each != length) in.refuse("its samples have lengths of their own");
  }
  if (length < 1 || length > steps) in.refuse("sequence_lens is not a length of its input");
  return length;
}

void check_kind(Importer& in) {
  const Node& node = in.node();
  if (node.has("clip")) in.refuse("clips its gates");
  if (node.integer("input_forget", 0) != 0) in.refuse("couples its input and forget gates");
}

// The checked attributes of a node.
struct Sequence {
  ConstantPtr w, r, bias;
  int64_t directions, steps, length, features, hidden, rows;
  bool reverse, batch_first;
  bool flipped = false;  // the graph has the timesteps of x and Y the other way around
  std::vector<float> h0, c0;
};

void add_layer(Importer& in, const std::string& type, const char* key, int64_t value) {
  Draft draft;
  draft.type = type;
  draft.set(key, value);
  in.add(std::move(draft));
}

// A GRU whose reset gate acts before the product (linear_before_reset 0) as layers for each
// timestep, which share their weights. With x and h concatenated, and sigmoid(-a) = 1 - sigmoid(a):
//   z, r, 1 - z = sigmoid(linear(x, h));  n = tanh(linear(x, r h));  h' = (1 - z) n + z h
class ResetFirstGru {
 public:
  ResetFirstGru(Importer& in, const Sequence& s) : in_(in), s_(s), input_(in.source()) {
    constexpr int64_t kMostSteps = 256;
    if (s.length * s.directions > kMostSteps) {
      in.refuse(
          fmt::format("linear_before_reset is 0, which is written out timestep by timestep, "
                      "for up to {} of them",
                      kMostSteps));
    }
  }

  // Produces [length, directions * hidden].
  void add() {
    std::vector<std::vector<int>> states;  // by direction and timestep
    for (int64_t d = 0; d < s_.directions; ++d) states.push_back(direction(d));
    std::vector<int> all;
    for (int64_t t = 0; t < s_.length; ++t) {
      for (const std::vector<int>& each : states) all.push_back(each[size_t(t)]);
    }
    join("concat", all, int64_t(all.size()) * s_.hidden);
    in_.shape_input({s_.length, s_.directions * s_.hidden});
  }

 private:
  // Returns the layers with the state after each timestep.
  std::vector<int> direction(int64_t d) {
    const bool back = d == 1 || s_.reverse;
    std::vector<int> states(size_t(s_.length));
    int gates = -1, fresh = -1;  // the layers that own the weights
    int h = -1;
    for (int64_t step = 0; step < s_.length; ++step) {
      const int64_t t = back ? s_.length - 1 - step : step;
      in_.resume(input_, {s_.length, s_.features});
      add_layer(in_, "select", "at", t);
      const int x = in_.source();
      if (step == 0) h = constant(d);
      join("concat", {x, h}, s_.features + s_.hidden);
      gates = linear(gates, 3 * s_.hidden, gate_weights(d), gate_bias(d));
      activation("sigmoid");
      const int all = in_.source();
      const int z = part(all, 0), r = part(all, 1), rest = part(all, 2);
      const int kept = join("multiply", {r, h}, s_.hidden);
      join("concat", {x, kept}, s_.features + s_.hidden);
      fresh = linear(fresh, s_.hidden, rows_of(d, {{2, 1.0f}}), bias_of(d, {{2, 1.0f}}));
      activation("tanh");
      const int n = in_.source();
      const int left = join("multiply", {rest, n}, s_.hidden);
      const int right = join("multiply", {z, h}, s_.hidden);
      h = states[size_t(t)] = join("add", {left, right}, s_.hidden);
    }
    return states;
  }

  using Gates = std::vector<std::pair<int64_t, float>>;  // ONNX's number, and a sign
  std::vector<float> gate_weights(int64_t d) const {
    return rows_of(d, {{0, 1.0f}, {1, 1.0f}, {0, -1.0f}});
  }
  std::vector<float> gate_bias(int64_t d) const {
    return bias_of(d, {{0, 1.0f}, {1, 1.0f}, {0, -1.0f}});
  }
  std::vector<float> rows_of(int64_t d, const Gates& gates) const {
    std::vector<float> made;
    for (const auto& [gate, sign] : gates) {
      for (int64_t j = 0; j < s_.hidden; ++j) {
        const int64_t row = d * s_.rows + gate * s_.hidden + j;
        for (int64_t i = 0; i < s_.features; ++i) {
          made.push_back(sign * s_.w->floats[size_t(row * s_.features + i)]);
        }
        for (int64_t i = 0; i < s_.hidden; ++i) {
          made.push_back(sign * s_.r->floats[size_t(row * s_.hidden + i)]);
        }
      }
    }
    return made;
  }
  std::vector<float> bias_of(int64_t d, const Gates& gates) const {
    std::vector<float> made;
    for (const auto& [gate, sign] : gates) {
      for (int64_t j = 0; j < s_.hidden; ++j) {
        const int64_t at = d * 2 * s_.rows + gate * s_.hidden + j;
        made.push_back(
            s_.bias ? sign * (s_.bias->floats[size_t(at)] + s_.bias->floats[size_t(at + s_.rows)])
                    : 0.0f);
      }
    }
    return made;
  }

  // The initial state, which does not depend on the input.
  int constant(int64_t d) {
    std::vector<float> state(size_t(s_.hidden), 0.0f);
    if (!s_.h0.empty()) std::copy_n(s_.h0.begin() + d * s_.hidden, s_.hidden, state.begin());
    linear(-1, s_.hidden, std::vector<float>(size_t(s_.hidden * s_.features), 0.0f), state);
    return in_.source();
  }
  // Returns the layer that owns the weights.
  int linear(int owner, int64_t out, std::vector<float> weight, std::vector<float> bias) {
    Draft draft;
    draft.type = "linear";
    draft.set("out", out);
    draft.weights_of = owner;
    if (owner < 0) {
      draft.weights = {{"weight", std::move(weight)}, {"bias", std::move(bias)}};
    }
    in_.add(std::move(draft));
    return owner < 0 ? in_.source() : owner;
  }
  void activation(const char* type) {
    Draft draft;
    draft.type = type;
    in_.add(std::move(draft));
  }
  int part(int layer, int64_t gate) {
    in_.resume(layer, Shape{3 * s_.hidden});
    Draft draft;
    draft.type = "slice";
    draft.set("start", gate * s_.hidden);
    draft.set("end", (gate + 1) * s_.hidden);
    in_.add(std::move(draft));
    return in_.source();
  }
  // One layer takes a limited number of inputs, so a concat of more becomes several.
  int join(const char* type, std::vector<int> layers, int64_t width) {
    while (layers.size() > kMostJoined) {
      std::vector<int> fewer;
      const int64_t each = width / int64_t(layers.size());
      for (size_t at = 0; at < layers.size(); at += kMostJoined) {
        const size_t end = std::min(layers.size(), at + kMostJoined);
        fewer.push_back(join(type,
                             {layers.begin() + ptrdiff_t(at), layers.begin() + ptrdiff_t(end)},
                             each * int64_t(end - at)));
      }
      layers = std::move(fewer);
    }
    Draft draft;
    draft.type = type;
    if (layers.size() == 1) return layers[0];
    in_.add_join(std::move(draft), std::move(layers), Shape{width});
    return in_.source();
  }

  Importer& in_;
  const Sequence& s_;
  int input_;
};

// Appends a recurrent layer of our own, which has PyTorch's form.
void add_recurrent(Importer& in, const Cell& cell, const Sequence& s) {
  Draft draft;
  draft.type = cell.layer;
  draft.set("hidden", s.hidden);
  draft.set("bidirectional", s.directions == 2);
  if (s.reverse) draft.set("reverse", true);
  const std::string activation = read_recurrent_activation(in, s.directions);
  if (draft.type == "rnn") draft.set("activation", "\"" + activation + "\"");
  draft.set("bias", s.bias != nullptr);
  for (int64_t d = 0; d < s.directions; ++d) {
    const std::string end = d == 1 ? "_l0_reverse" : "_l0";
    draft.weights.push_back(
        {"weight_ih" + end, gates(*s.w, d * s.rows * s.features, s.hidden * s.features, cell)});
    draft.weights.push_back(
        {"weight_hh" + end, gates(*s.r, d * s.rows * s.hidden, s.hidden * s.hidden, cell)});
    if (!s.bias) continue;
    draft.weights.push_back({"bias_ih" + end, gates(*s.bias, d * 2 * s.rows, s.hidden, cell)});
    draft.weights.push_back(
        {"bias_hh" + end, gates(*s.bias, (d * 2 + 1) * s.rows, s.hidden, cell)});
  }
  if (!s.h0.empty() || !s.c0.empty()) {
    draft.set("initial_state", true);
    const std::vector<float> zeros(size_t(s.directions * s.hidden), 0.0f);
    draft.weights.push_back({"h0_l0", s.h0.empty() ? zeros : s.h0});
    if (draft.type == "lstm") draft.weights.push_back({"c0_l0", s.c0.empty() ? zeros : s.c0});
  }
  in.add(std::move(draft));
}

// Appends the state after the last timestep of each direction, side by side.
void add_last(Importer& in, const Sequence& s) {
  const int sequence = in.source();
  const Shape shape = in.stored();
  if (s.directions == 1) {
    return add_layer(in, "select", "at", s.reverse ? int64_t{0} : int64_t{-1});
  }
  std::vector<int> ends;
  for (const int64_t d : {0, 1}) {
    in.resume(sequence, shape);
    add_layer(in, "select", "at", d == 0 ? int64_t{-1} : int64_t{0});
    Draft half;
    half.type = "slice";
    half.set("start", d * s.hidden);
    half.set("end", (d + 1) * s.hidden);
    in.add(std::move(half));
    ends.push_back(in.source());
  }
  Draft both;
  both.type = "concat";
  in.add_join(std::move(both), ends, Shape{2 * s.hidden});
}

// Whether the reset gate may also act after the product: for a single timestep from a state of zero
// both are the same if the state has no bias.
bool reset_first(const Node& node, const Sequence& s) {
  if (node.op != "GRU" || node.integer("linear_before_reset", 0) != 0) return false;
  if (s.length > 1 || !s.h0.empty()) return true;
  for (int64_t d = 0; s.bias && d < s.directions; ++d) {
    for (int64_t i = 5 * s.hidden; i < 6 * s.hidden; ++i) {
      if (s.bias->floats[size_t(d * 2 * s.rows + i)] != 0) return true;
    }
  }
  return false;
}

}  // namespace

// x [T, N, in], W [D, gates*H, in], R [D, gates*H, H], B [D, 2*gates*H]; Y [T, D, N, H]. With
// layout 1 the batch comes first in x and Y.
void import_recurrent(Importer& in) {
  const Node& node = in.node();
  const Cell& cell = cell_of(node.op);
  check_kind(in);
  const auto computed = [&](size_t input) {
    return in.has(input) && !in.is_known(input) && !in.repeated(input);
  };
  if (computed(5) || computed(6) || in.gives(2) || in.has(7)) return import_unrolled(in);
  Sequence s;
  s.w = in.require_known(1);
  s.r = in.require_known(2);
  s.bias = in.has(3) ? in.require_known(3) : nullptr;
  View view = in.take(0).view;
  s.batch_first = node.integer("layout", 0) == 1;
  // Timesteps that lie backwards are read in the other direction.
  const size_t time = s.batch_first ? 1 : 0;
  if (view.dims.size() == 3 && view.batch_axis != time && !view.in_order()) {
    const View turned = flipped(view, time);
    s.flipped = turned.in_order() && node.text("direction", "forward") != "bidirectional";
    if (s.flipped) view = turned;
  }
  view = in.straighten(view);
  if (view.dims.size() != 3 || view.batch_axis != (s.batch_first ? 0u : 1u)) {
    in.refuse("its input is not [timesteps, N, features] (or [N, timesteps, features], layout 1)");
  }
  const std::string direction = node.text("direction", "forward");
  s.reverse = (direction == "reverse") != s.flipped;
  s.directions = direction == "bidirectional" ? 2 : 1;
  s.steps = view.dims[s.batch_first ? 1 : 0];
  s.features = view.dims[2];
  s.hidden = s.r->dims.size() == 3 ? s.r->dims[2] : 0;
  s.rows = int64_t(cell.order.size()) * s.hidden;
  if (s.w->integer || s.r->integer || (s.bias && s.bias->integer)) {
    in.refuse("its weights are whole numbers");
  }
  if (s.hidden < 1 || s.w->dims != std::vector<int64_t>{s.directions, s.rows, s.features} ||
      s.r->dims != std::vector<int64_t>{s.directions, s.rows, s.hidden} ||
      (s.bias && s.bias->dims != std::vector<int64_t>{s.directions, 2 * s.rows})) {
    in.refuse("its weights do not fit its input");
  }
  s.length = read_length(in, s.steps);
  s.h0 = read_state(in, 5, s.directions, s.hidden);
  s.c0 = read_state(in, 6, s.directions, s.hidden);
  in.shape_input({s.steps, s.features});
  if (s.flipped && s.length < s.steps) in.refuse("reads a part of sequences that lie backwards");
  if (s.length < s.steps) add_layer(in, "slice", "end", s.length);
  if (reset_first(node, s)) {
    read_recurrent_activation(in, s.directions);
    ResetFirstGru(in, s).add();
  } else {
    add_recurrent(in, cell, s);
  }
  const int sequence = in.source();
  const Shape shape = in.stored();
  if (in.gives(1)) {
    add_last(in, s);
    View last;
    last.dims = s.batch_first ? std::vector<int64_t>{kBatch, s.directions, s.hidden}
                              : std::vector<int64_t>{s.directions, kBatch, s.hidden};
    last.batch_axis = s.batch_first ? 0 : 1;
    in.give(last, 1);
  }
  if (!in.gives(0)) return;
  in.resume(sequence, shape);
  if (s.length < s.steps) {  // timesteps after the end are zero
    Draft pad;
    pad.type = "pad";
    pad.set("padding", fmt::format("[0, 0, 0, {}]", s.steps - s.length));
    in.add(std::move(pad));
  }
  View y;
  y.dims = s.batch_first ? std::vector<int64_t>{kBatch, s.steps, s.directions, s.hidden}
                         : std::vector<int64_t>{s.steps, s.directions, kBatch, s.hidden};
  y.batch_axis = s.batch_first ? 0 : 2;
  in.give(s.flipped ? flipped(y, time) : y);
}

}  // namespace ridgeline::onnx
