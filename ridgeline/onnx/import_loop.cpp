#include <algorithm>
#include <map>
#include <set>

#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/importer.h"
#include "ridgeline/onnx/recurrent_cell.h"
#include "ridgeline/ops/join.h"

namespace ridgeline::onnx {
namespace {

// A Loop or Scan that runs a known number of times. A body that is a timestep of an RNN, GRU or
// LSTM becomes that operator; any other is written out, once for each time.
class LoopImporter {
 public:
  explicit LoopImporter(Importer& in) : in_(in), node_(in.node()) {
    const auto found = node_.attributes.find("body");
    if (found == node_.attributes.end() || !found->second.graph) in.refuse("has no body");
    body_ = found->second.graph.get();
    prefix_ = node_.outputs.empty() ? "" : first_output();
    node_.op == "Loop" ? read_loop() : read_scan();
    find_invariants();
  }

  void import() {
    if (in_.opset() < 8) in_.refuse("is of an old form");
    if (!import_cell()) unroll();
  }

 private:
  struct State {
    std::string inner, after;   // values of the body
    std::string initial, last;  // values of the graph
  };
  struct Pair {
    std::string inner, outer;
  };

  std::string first_output() const {
    for (const std::string& name : node_.outputs) {
      if (!name.empty()) return name;
    }
    return "";
  }
  std::string output(size_t i) const { return i < node_.outputs.size() ? node_.outputs[i] : ""; }

  // Inputs: the number of times, a condition, the states; of the body the same with a counter.
  void read_loop() {
    const size_t count = node_.inputs.size() < 2 ? 0 : node_.inputs.size() - 2;
    if (body_->inputs.size() != count + 2 || body_->outputs.size() < count + 1) {
      in_.refuse("its body does not fit its inputs");
    }
    const ConstantPtr most = in_.known(0), begins = in_.known(1);
    if (!most || !most->integer || most->kept() != 1 || most->ints[0] < 1) {
      in_.refuse("the number of times it runs is not known");
    }
    if (begins && begins->all_zero()) in_.refuse("does not run at all");
    times_ = most->ints[0];
    counter_ = body_->inputs[0].name;
    condition_ = body_->inputs[1].name;
    goes_on_ = body_->outputs[0].name;
    for (size_t i = 0; i < count; ++i) {
      states_.push_back(
          {body_->inputs[i + 2].name, body_->outputs[i + 1].name, node_.inputs[i + 2], output(i)});
    }
    for (size_t i = count; i + 1 < body_->outputs.size(); ++i) {
      stacked_.push_back({body_->outputs[i + 1].name, output(i)});
    }
  }

  // Inputs: the states, then sequences, of which the body gets one timestep each.
  void read_scan() {
    const auto scanned = node_.integer("num_scan_inputs", 0);
    const auto inputs = int64_t(node_.inputs.size());
    if (in_.opset() < 9 || scanned < 1 || scanned > inputs ||
        int64_t(body_->inputs.size()) != inputs) {
      in_.refuse("its body does not fit its inputs");
    }
    for (const char* key : {"scan_input_axes", "scan_input_directions", "scan_output_axes",
                            "scan_output_directions"}) {
      for (const int64_t each : node_.integers(key)) {
        if (each != 0) in_.refuse("scans other dimensions than the first, or backwards");
      }
    }
    const auto count = size_t(inputs - scanned);
    if (body_->outputs.size() < count) in_.refuse("its body does not fit its inputs");
    for (size_t i = 0; i < count; ++i) {
      states_.push_back(
          {body_->inputs[i].name, body_->outputs[i].name, node_.inputs[i], output(i)});
    }
    for (size_t i = count; i < size_t(inputs); ++i) {
      const View& view = in_.look(i).view;
      if (view.dims.size() < 2 || view.batch_axis == 0) in_.refuse("scans the batch");
      times_ = view.dims[0];
      scanned_.push_back({body_->inputs[i].name, node_.inputs[i]});
    }
    for (size_t i = count; i < body_->outputs.size(); ++i) {
      stacked_.push_back({body_->outputs[i].name, output(i)});
    }
  }

  // Follows nodes that change nothing.
  std::string origin(std::string name) const {
    for (size_t i = body_->nodes.size(); i-- > 0;) {
      const Node& node = body_->nodes[i];
      if (node.op == "Identity" && node.outputs == std::vector<std::string>{name}) {
        name = node.input(0);
      }
    }
    return name;
  }

  // States that never change are values of the graph, as weights are.
  void find_invariants() {
    std::vector<State> left;
    for (const State& state : states_) {
      if (origin(state.after) == state.inner) {
        outer_[state.inner] = state.initial;
        if (!state.last.empty()) in_.name_same(state.last, state.initial);
      } else {
        left.push_back(state);
      }
    }
    states_ = std::move(left);
    for (const auto& [name, value] : body_->constants) {
      outer_[name] = prefix_ + "/" + name;
      in_.name_constant(outer_[name], value);
    }
  }

  // The constants that are known inside of the body, whichever time it is.
  std::map<std::string, ConstantPtr> known_inside() const {
    std::map<std::string, ConstantPtr> known;
    for (const auto& [inner, outer] : outer_) {
      if (const ConstantPtr value = in_.constant_named(outer)) known[inner] = value;
    }
    for (const std::string& name : node_.captured) {
      if (const ConstantPtr value = in_.constant_named(name)) known[name] = value;
    }
    return known;
  }

  // Splits off the states that count: integers whose values follow from constants alone. Runs them
  // through all times. Returns false if the number of times depends on the samples.
  bool count(std::map<std::string, ConstantPtr> known,
             std::map<std::string, std::vector<int64_t>>& counters) const {
    constexpr int64_t kMostTimes = 1 << 16;
    if (times_ > kMostTimes) return false;
    std::set<std::string> needed{goes_on_};
    for (const State& state : states_) {
      const ConstantPtr initial = in_.constant_named(state.initial);
      if (initial && initial->integer) needed.insert(state.after);
    }
    std::vector<const Node*> nodes;
    for (size_t i = body_->nodes.size(); i-- > 0;) {
      const Node& node = body_->nodes[i];
      if (!std::ranges::any_of(node.outputs,
                               [&](const std::string& name) { return needed.contains(name); })) {
        continue;
      }
      needed.insert(node.inputs.begin(), node.inputs.end());
      nodes.insert(nodes.begin(), &node);
    }
    std::map<std::string, ConstantPtr> now = known;
    for (const State& state : states_) now[state.inner] = in_.constant_named(state.initial);
    for (int64_t time = 0; time < times_; ++time) {
      if (!counter_.empty()) now[counter_] = make_ints({}, {time});
      if (!condition_.empty()) now[condition_] = make_ints({}, {1});
      for (const State& state : states_) {
        const ConstantPtr& value = now[state.inner];
        if (value && value->integer && value->kept() == 1) {
          counters[state.inner].push_back(value->ints[0]);
        }
      }
      if (!counter_.empty()) counters[counter_].push_back(time);
      for (const Node* node : nodes) {
        std::vector<ConstantPtr> inputs;
        for (const std::string& name : node->inputs) inputs.push_back(now[name]);
        const bool all = std::ranges::all_of(inputs, [](const auto& each) { return !!each; });
        now[node->outputs[0]] = all ? fold(*node, inputs, 1 << 10) : nullptr;
      }
      for (const State& state : states_) now[state.inner] = now[state.after];
      if (goes_on_.empty()) continue;
      const ConstantPtr goes_on = now[goes_on_];
      if (!goes_on) return false;
      if (goes_on->all_zero() && time + 1 < times_) return false;
    }
    return true;
  }

  // Imports the loop as RNN, GRU or LSTM; returns false if it is none.
  bool import_cell() {
    TimestepBody timestep;
    timestep.body = body_;
    timestep.constants = known_inside();
    std::map<std::string, std::vector<int64_t>> counters;
    if (!count(timestep.constants, counters)) return false;
    std::string sequence;
    if (!find_timestep(timestep, counters, sequence)) return false;
    const Activation* x = in_.activation_named(sequence);
    if (x == nullptr || x->view.dims.size() != 3 || x->view.batch_axis != 1 ||
        x->view.merged != 1 || x->view.dims[0] != times_) {
      return false;
    }
    timestep.features = x->view.dims[2];
    std::vector<State> states;
    for (const State& state : states_) {
      if (counters.contains(state.inner)) continue;
      const ConstantPtr initial = in_.constant_named(state.initial);
      if (!initial || initial->integer || initial->dims.empty()) return false;
      timestep.states.push_back({state.inner, state.after, initial->dims.back()});
      if (initial->dims.back() < 1) return false;
      states.push_back(state);
    }
    for (const Pair& each : stacked_) {
      if (!each.outer.empty()) timestep.per_step.push_back(each.inner);
    }
    const auto cell = recognise_cell(timestep);
    if (!cell) return false;
    import_as(*cell, sequence, states);
    return true;
  }

  // Finds what the body reads of a sequence: an input of a Scan, or a Gather by a counter.
  bool find_timestep(TimestepBody& timestep,
                     const std::map<std::string, std::vector<int64_t>>& counters,
                     std::string& sequence) const {
    if (scanned_.size() == 1) {
      timestep.x = scanned_[0].inner;
      sequence = scanned_[0].outer;
      return true;
    }
    for (const Node& node : body_->nodes) {
      const auto counter = counters.find(node.input(1));
      if (node.op != "Gather" || node.integer("axis", 0) != 0 || counter == counters.end()) {
        continue;
      }
      for (size_t i = 0; i < counter->second.size(); ++i) {
        if (counter->second[i] != int64_t(i)) return false;
      }
      if (!timestep.x.empty()) return false;
      timestep.x = node.outputs[0];
      sequence = outer_.contains(node.inputs[0]) ? outer_.at(node.inputs[0]) : node.inputs[0];
    }
    return !timestep.x.empty();
  }

  void import_as(const RecurrentCell& cell, const std::string& sequence,
                 const std::vector<State>& states) {
    Node made;
    made.op = cell.op;
    made.name = node_.name;
    made.attributes = cell.attributes;
    made.inputs = {
        sequence, prefix_ + "/W", prefix_ + "/R", prefix_ + "/B", "", states[cell.hidden].initial};
    in_.name_constant(made.inputs[1], cell.w);
    in_.name_constant(made.inputs[2], cell.r);
    in_.name_constant(made.inputs[3], cell.bias);
    if (cell.op == "LSTM") made.inputs.push_back(states[cell.memory].initial);
    const bool stacks =
        std::ranges::any_of(stacked_, [](const Pair& each) { return !each.outer.empty(); });
    const std::string last = states[cell.hidden].last;
    if (cell.op == "LSTM" && !states[cell.memory].last.empty()) {
      in_.refuse("the last cell state is not given here");
    }
    made.outputs = {stacks ? prefix_ + "/Y" : "", last.empty() ? "" : prefix_ + "/Y_h"};
    in_.import_inner(made);
    // Y is [timesteps, 1, N, hidden] and Y_h [1, N, hidden].
    for (const Pair& each : stacked_) {
      if (!each.outer.empty()) without_direction(made.outputs[0], 1, each.outer);
    }
    if (!last.empty()) without_direction(made.outputs[1], 0, last);
  }
  void without_direction(const std::string& name, size_t axis, const std::string& as) {
    Activation value = *in_.activation_named(name);
    value.view.dims.erase(value.view.dims.begin() + ptrdiff_t(axis));
    value.view.batch_axis -= 1;
    in_.name_activation(as, std::move(value));
  }

  // Imports the nodes of the body for each time, with names of their own.
  void unroll() {
    constexpr int64_t kMostTimes = 256, kMostNodes = 20'000;
    if (times_ > kMostTimes || times_ * int64_t(body_->nodes.size()) > kMostNodes) {
      in_.refuse(
          fmt::format("is no recurrent layer that is known here, and is written out for up "
                      "to {} timesteps; it has {}",
                      kMostTimes, times_));
    }
    count_readers();
    std::map<std::string, std::string> now = outer_;
    for (const State& state : states_) now[state.inner] = state.initial;
    std::vector<std::vector<std::string>> stacked(stacked_.size());
    const std::set<size_t> constant = import_constant_nodes(now);
    for (int64_t time = 0; time < times_; ++time) {
      const std::string prefix = fmt::format("{}/{}/", prefix_, time);
      bind(now, counter_, prefix, make_ints({}, {time}));
      bind(now, condition_, prefix, make_ints({}, {1}));
      for (const Pair& each : scanned_) {
        bind(now, each.inner + "/at", prefix, make_ints({}, {time}));
        import_node("Gather", {each.outer, now[each.inner + "/at"]}, prefix + each.inner);
        now[each.inner] = prefix + each.inner;
      }
      for (size_t i = 0; i < body_->nodes.size(); ++i) {
        if (!constant.contains(i)) import_renamed(body_->nodes[i], prefix, now);
      }
      std::vector<std::string> after;
      for (const State& state : states_) after.push_back(resolved(now, state.after));
      for (size_t i = 0; i < stacked.size(); ++i) {
        stacked[i].push_back(resolved(now, stacked_[i].inner));
      }
      for (size_t i = 0; i < states_.size(); ++i) now[states_[i].inner] = after[i];
      if (goes_on_.empty()) continue;
      const ConstantPtr goes_on = in_.constant_named(resolved(now, goes_on_));
      if (!goes_on) in_.refuse("the number of times it runs depends on the samples");
      if (goes_on->all_zero()) break;
    }
    for (const State& state : states_) {
      if (!state.last.empty()) in_.name_same(state.last, now[state.inner]);
    }
    for (size_t i = 0; i < stacked.size(); ++i) {
      if (!stacked_[i].outer.empty()) stack(stacked[i], stacked_[i].outer);
    }
  }

  void count_readers() {
    for (const Node& node : body_->nodes) {
      for (const std::string& name : node.inputs) ++readers_[name];
    }
    for (const ValueInfo& output : body_->outputs) ++readers_[output.name];
    // One more each, so that no layer takes up a bias in some of the times only: layers with the
    // same weights share them.
    for (auto& [name, readers] : readers_) ++readers;
    // What the body reads is read once for each time.
    for (const std::string& name : node_.captured) in_.count_reads(name, 2);
    for (const std::string& name : node_.inputs) in_.count_reads(name, 2);
  }

  static std::string resolved(const std::map<std::string, std::string>& now,
                              const std::string& name) {
    const auto found = now.find(name);
    return found == now.end() ? name : found->second;
  }
  void bind(std::map<std::string, std::string>& now, const std::string& inner,
            const std::string& prefix, ConstantPtr value) {
    if (inner.empty()) return;
    now[inner] = prefix + inner;
    in_.name_constant(now[inner], std::move(value));
  }
  void import_renamed(const Node& node, const std::string& prefix,
                      std::map<std::string, std::string>& now) {
    Node made = node;
    for (std::string& name : made.inputs) name = resolved(now, name);
    for (std::string& name : made.captured) name = resolved(now, name);
    if (!made.captured.empty()) in_.refuse("holds a loop inside of its body");
    for (std::string& name : made.outputs) {
      if (name.empty()) continue;
      now[name] = prefix + name;
      in_.count_reads(now[name], readers_[name]);
      name = now[name];
    }
    in_.import_inner(made);
  }
  // Nodes that give the same every time are computed once, so that their results are the same
  // constants, which layers share as weights.
  std::set<size_t> import_constant_nodes(std::map<std::string, std::string>& now) {
    std::set<std::string> known;
    for (const auto& [name, value] : known_inside()) known.insert(name);
    std::set<size_t> done;
    for (size_t i = 0; i < body_->nodes.size(); ++i) {
      const Node& node = body_->nodes[i];
      const auto is_known = [&](const std::string& name) {
        return name.empty() || known.contains(name);
      };
      if (!node.captured.empty() || !std::ranges::all_of(node.inputs, is_known)) continue;
      import_renamed(node, prefix_ + "/", now);
      known.insert(node.outputs.begin(), node.outputs.end());
      done.insert(i);
    }
    return done;
  }

  void import_node(const char* op, std::vector<std::string> inputs, const std::string& output,
                   int64_t axis = 0) {
    Node made;
    made.op = op;
    made.name = node_.name;
    made.inputs = std::move(inputs);
    made.outputs = {output};
    made.attributes["axis"].i = axis;
    in_.import_inner(made);
  }

  // Joins [N, ...] of each time to [times, N, ...].
  void stack(std::vector<std::string> values, const std::string& as) {
    for (std::string& value : values) {
      Node made;
      made.op = "Unsqueeze";
      made.name = node_.name;
      made.inputs = {value};
      made.attributes["axes"].ints = {0};
      made.outputs = {fmt::format("{}/row{}", as, rows_++)};
      in_.import_inner(made);
      value = made.outputs[0];
    }
    while (values.size() > kMostJoined) {
      std::vector<std::string> fewer;
      for (size_t at = 0; at < values.size(); at += kMostJoined) {
        const size_t end = std::min(values.size(), at + kMostJoined);
        fewer.push_back(fmt::format("{}/row{}", as, rows_++));
        import_node("Concat", {values.begin() + ptrdiff_t(at), values.begin() + ptrdiff_t(end)},
                    fewer.back());
      }
      values = std::move(fewer);
    }
    import_node("Concat", std::move(values), as);
  }

  Importer& in_;
  const Node& node_;
  const Graph* body_ = nullptr;
  std::string prefix_;  // of names inside of the body
  int64_t times_ = 0;
  std::string counter_, condition_, goes_on_;  // of a Loop
  std::vector<State> states_;
  std::vector<Pair> scanned_, stacked_;
  std::map<std::string, std::string> outer_;  // values of the body that never change
  std::map<std::string, int> readers_;        // of values of the body
  int rows_ = 0;
};

}  // namespace

void import_loop(Importer& in) { LoopImporter(in).import(); }

}  // namespace ridgeline::onnx
