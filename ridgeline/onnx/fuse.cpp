#include "ridgeline/onnx/fuse.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace ridgeline::onnx {
namespace {

// A graph with the producer of each value and the number of its readers.
class Fuser {
 public:
  Fuser(Graph& graph, const std::string& output) : graph_(graph) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const std::string& name : graph.nodes[i].outputs) {
        if (!name.empty()) made_[name] = i;
      }
      for (const std::string& name : graph.nodes[i].inputs) ++reads_[name];
    }
    ++reads_[output];
  }

  void run() {
    for (Node& node : graph_.nodes) {
      if (node.outputs.size() != 1 || !node.domain.empty()) continue;
      if (node.op == "Mul" || node.op == "Div") product(node);
      if (node.op == "Where") softplus(node);
      if (node.op == "Div") unit_length(node);
      if (node.op == "Add") group_norm(node);
      if (node.op == "Add" || node.op == "Mul" || node.op == "Div") norm(node);
    }
  }

 private:
  const Node* maker(const std::string& name, const char* op) const {
    const auto found = made_.find(name);
    if (found == made_.end()) return nullptr;
    const Node& node = graph_.nodes[found->second];
    return node.op == op && node.domain.empty() ? &node : nullptr;
  }
  const Constant* constant(const std::string& name) const {
    const auto found = graph_.constants.find(name);
    return found == graph_.constants.end() ? nullptr : found->second.get();
  }
  std::optional<double> scalar(const std::string& name) const {
    const Constant* value = constant(name);
    if (value == nullptr || value->integer || (!value->uniform && value->numel() != 1)) {
      return std::nullopt;
    }
    return value->number(0);
  }
  bool is(const std::string& name, double wanted) const {
    const auto found = scalar(name);
    return found && std::abs(*found - wanted) <= 1e-6 * std::abs(wanted);
  }
  // Returns the other one of a node's two inputs; "" if `name` is not one of them.
  std::string beside(const Node& node, const std::string& name) const {
    if (node.inputs.size() != 2) return "";
    return node.inputs[0] == name ? node.inputs[1] : node.inputs[1] == name ? node.inputs[0] : "";
  }
  // Splits two inputs into a value and a constant of one element.
  std::optional<std::pair<std::string, double>> with_scalar(const Node& node) const {
    if (node.inputs.size() != 2) return std::nullopt;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      if (const auto number = scalar(node.inputs[i])) {
        return std::pair{node.inputs[1 - i], *number};
      }
    }
    return std::nullopt;
  }

  struct Factors {
    std::vector<std::string> values;
    double number = 1;
  };
  // Collects the factors of a product of several nodes whose inner results have no other readers.
  void collect(const std::string& name, bool root, Factors& found, int depth = 0) const {
    if (const auto number = scalar(name)) {
      found.number *= *number;
      return;
    }
    const bool inner = root || (reads_.contains(name) && reads_.at(name) == 1);
    const Node* mul = depth < 8 && inner ? maker(name, "Mul") : nullptr;
    const Node* div = depth < 8 && inner ? maker(name, "Div") : nullptr;
    if (mul != nullptr && mul->inputs.size() == 2) {
      for (const std::string& each : mul->inputs) collect(each, false, found, depth + 1);
    } else if (div != nullptr && div->inputs.size() == 2 && scalar(div->inputs[1])) {
      found.number /= *scalar(div->inputs[1]);
      collect(div->inputs[0], false, found, depth + 1);
    } else {
      found.values.push_back(name);
    }
  }

  // x * sigmoid(x); 0.5 x (1 + erf(x / sqrt 2)); x * relu6(x + 3) / 6 and x * hardsigmoid(x).
  void product(Node& node) {
    Factors found;
    collect(node.outputs[0], true, found);
    if (found.values.size() != 2) return;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const std::string &x = found.values[i], &other = found.values[1 - i];
      const char* made = nullptr;
      if (is_sigmoid(other, x) && found.number == 1) made = "Silu";
      if (is_erf_sum(other, x) && std::abs(found.number - 0.5) < 1e-6) made = "Gelu";
      if (is_relu6(other, x) && std::abs(found.number - 1.0 / 6) < 1e-6) made = "HardSwish";
      if (is_hard_sigmoid(other, x) && found.number == 1) made = "HardSwish";
      if (made == nullptr) continue;
      replace(node, made, {x});
      return;
    }
  }

  bool is_sigmoid(const std::string& name, const std::string& x) const {
    const Node* node = maker(name, "Sigmoid");
    return node != nullptr && node->input(0) == x;
  }
  bool is_hard_sigmoid(const std::string& name, const std::string& x) const {
    const Node* node = maker(name, "HardSigmoid");
    return node != nullptr && node->input(0) == x &&
           std::abs(node->number("alpha", 0.2) - 1.0 / 6) < 1e-6 &&
           node->number("beta", 0.5) == 0.5;
  }
  bool is_erf_sum(const std::string& name, const std::string& x) const {
    const Node* sum = maker(name, "Add");
    const auto parts = sum != nullptr ? with_scalar(*sum) : std::nullopt;
    const Node* erf = parts && parts->second == 1 ? maker(parts->first, "Erf") : nullptr;
    if (erf == nullptr) return false;
    const Node* div = maker(erf->input(0), "Div");
    if (div != nullptr) return div->input(0) == x && is(div->input(1), std::sqrt(2.0));
    const Node* mul = maker(erf->input(0), "Mul");
    const auto scaled = mul != nullptr ? with_scalar(*mul) : std::nullopt;
    return scaled && scaled->first == x && std::abs(scaled->second - std::sqrt(0.5)) < 1e-6;
  }
  bool is_relu6(const std::string& name, const std::string& x) const {
    const Node* clip = maker(name, "Clip");
    if (clip == nullptr) return false;
    const bool inputs = clip->inputs.size() == 3;
    const auto low = inputs ? scalar(clip->input(1)) : clip->number("min", -1);
    const auto high = inputs ? scalar(clip->input(2)) : clip->number("max", -1);
    const Node* sum = maker(clip->input(0), "Add");
    const auto parts = sum != nullptr ? with_scalar(*sum) : std::nullopt;
    return low == 0.0 && high == 6.0 && parts && parts->first == x && parts->second == 3;
  }

  // Returns the number of dimensions of a value, if the file states it.
  std::optional<int64_t> rank_of(const std::string& name) const {
    const auto found = graph_.values.find(name);
    if (found == graph_.values.end() || !found->second.known_shape) return std::nullopt;
    return int64_t(found->second.dims.size());
  }

  // Matches x for large x, and softplus(x) elsewhere.
  void softplus(Node& node) {
    constexpr double kLarge = 15;  // from where on log(1 + e^x) is x in fp32
    const Node* large = maker(node.input(0), "Greater");
    const Node* curve = maker(node.input(2), "Softplus");
    const std::string x = node.input(1);
    if (large == nullptr || curve == nullptr || curve->input(0) != x || large->input(0) != x)
      return;
    const auto threshold = scalar(large->input(1));
    if (threshold && *threshold >= kLarge) replace(node, "Softplus", {x});
  }

  // x / max(|x|, a small number)
  void unit_length(Node& node) {
    std::string name = node.input(1);
    if (const Node* expand = maker(name, "Expand"); expand != nullptr) name = expand->input(0);
    if (const Node* clip = maker(name, "Clip"); clip != nullptr) {
      const auto least = scalar(clip->input(1));
      if (!least || *least > 1e-6 || !clip->input(2).empty()) return;
      name = clip->input(0);
    }
    const Node* norm = maker(name, "ReduceL2");
    const auto axis = norm != nullptr ? last_axes(*norm) : std::nullopt;
    if (axis != -1 || norm->input(0) != node.input(0)) return;
    replace(node, "LpNormalization", {node.input(0)});
  }

  // Returns the first of the axes of a reduction, counted from the end, if they are the last ones.
  std::optional<int64_t> last_axes(const Node& node) const {
    if (node.integer("keepdims", 1) != 1) return std::nullopt;
    std::vector<int64_t> axes = node.integers("axes");
    if (const Constant* given = constant(node.input(1)); given != nullptr) axes = given->ints;
    if (axes.empty()) return std::nullopt;
    const int64_t rank = rank_of(node.input(0)).value_or(0);
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] >= 0) axes[i] -= rank;
      if (axes[i] != int64_t(i) - int64_t(axes.size())) return std::nullopt;
    }
    return axes.front();
  }

  // Returns the value whose mean over the last dimensions a ReduceMean takes, and the first of
  // these axes.
  std::optional<std::pair<std::string, int64_t>> mean_of(const std::string& name) const {
    const Node* node = maker(name, "ReduceMean");
    const auto axis = node != nullptr ? last_axes(*node) : std::nullopt;
    if (!axis) return std::nullopt;
    return std::pair{node->input(0), *axis};
  }
  std::optional<std::string> square_of(const std::string& name) const {
    if (const Node* pow = maker(name, "Pow"); pow != nullptr && is(pow->input(1), 2)) {
      return pow->input(0);
    }
    const Node* mul = maker(name, "Mul");
    if (mul != nullptr && mul->input(0) == mul->input(1)) return mul->input(0);
    return std::nullopt;
  }

  struct Normalised {
    std::string x;
    int64_t axis = -1;
    double epsilon = 0;
    bool centred = false;
  };
  // Matches x / sqrt(mean(x^2) + epsilon), or x times the reciprocal, or either of x - mean(x).
  std::optional<Normalised> normalised(const std::string& name) const {
    const Node* div = maker(name, "Div");
    std::string divisor = div != nullptr ? div->input(1) : "";
    if (const Node* mul = maker(name, "Mul"); mul != nullptr) {
      const Node* inverse = maker(mul->input(1), "Reciprocal");
      if (inverse == nullptr) return std::nullopt;
      div = mul;
      divisor = inverse->input(0);
    }
    const Node* root = div != nullptr ? maker(divisor, "Sqrt") : nullptr;
    const Node* sum = root != nullptr ? maker(root->input(0), "Add") : nullptr;
    const auto parts = sum != nullptr ? with_scalar(*sum) : std::nullopt;
    const auto mean = parts ? mean_of(parts->first) : std::nullopt;
    const auto square = mean ? square_of(mean->first) : std::nullopt;
    if (!square) return std::nullopt;
    Normalised found{*square, mean->second, parts->second, false};
    if (div->input(0) != found.x) {
      // Some exporters subtract the mean once for each use.
      const Node* a = maker(div->input(0), "Sub");
      const Node* b = maker(found.x, "Sub");
      if (a == nullptr || b == nullptr || a->inputs != b->inputs) return std::nullopt;
    }
    const Node* centre = maker(found.x, "Sub");
    const auto shift = centre != nullptr ? mean_of(centre->input(1)) : std::nullopt;
    if (shift && shift->first == centre->input(0) && shift->second == found.axis) {
      found.x = centre->input(0);
      found.centred = true;
    }
    return found;
  }

  // A constant that a node applies to the value `name`, with as many dimensions as are normalised.
  struct Affine {
    Normalised core;
    std::string scale, shift;
  };
  std::optional<Affine> affine(const Node& node) const {
    Affine found;
    std::string inner = node.outputs[0];
    if (node.op == "Add") {
      for (const size_t i : {size_t{0}, size_t{1}}) {
        if (constant(node.inputs[i]) != nullptr) {
          found.shift = node.inputs[i];
          inner = node.inputs[1 - i];
        }
      }
      if (found.shift.empty()) return std::nullopt;
    }
    if (const Node* mul = maker(inner, "Mul"); mul != nullptr && mul->inputs.size() == 2) {
      for (const size_t i : {size_t{0}, size_t{1}}) {
        if (constant(mul->inputs[i]) != nullptr) {
          found.scale = mul->inputs[i];
          inner = mul->inputs[1 - i];
        }
      }
    }
    const auto core = normalised(inner);
    if (!core) return std::nullopt;
    found.core = *core;
    for (const std::string& each : {found.scale, found.shift}) {
      const Constant* value = constant(each);
      if (value != nullptr && int64_t(value->dims.size()) != -core->axis) return std::nullopt;
    }
    return found;
  }

  // Whether a product with a constant reads the value, which then has the scale of a norm.
  bool scaled_later(const std::string& name) const {
    return std::ranges::any_of(graph_.nodes, [&](const Node& node) {
      return node.op == "Mul" && constant(beside(node, name)) != nullptr;
    });
  }

  void norm(Node& node) {
    if (node.inputs.size() != 2) return;
    const auto found = affine(node);
    if (!found) return;
    Attribute axis, epsilon;
    axis.i = found->core.axis;
    epsilon.f = found->core.epsilon;
    if (found->core.centred && !found->scale.empty()) {
      std::vector<std::string> inputs{found->core.x, found->scale};
      if (!found->shift.empty()) inputs.push_back(found->shift);
      replace(node, "LayerNormalization", std::move(inputs));
    } else if (!found->core.centred && found->shift.empty()) {
      std::vector<std::string> inputs{found->core.x};
      if (found->scale.empty() && scaled_later(node.outputs[0])) return;
      if (!found->scale.empty()) inputs.push_back(found->scale);
      replace(node, "RmsNorm", std::move(inputs));
    } else {
      return;
    }
    node.attributes = {{"axis", axis}, {"epsilon", epsilon}};
  }

  // Returns the constant among the two inputs of a node, with the other input.
  std::optional<std::pair<std::string, std::string>> with_constant(const Node* node) const {
    if (node == nullptr || node->inputs.size() != 2) return std::nullopt;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      if (constant(node->inputs[i]) != nullptr) {
        return std::pair{node->inputs[1 - i], node->inputs[i]};
      }
    }
    return std::nullopt;
  }

  // Matches groups as instances, [N, groups, ...], then a scale and a shift per channel.
  void group_norm(Node& node) {
    const auto shift = with_constant(&node);
    const auto scale = shift ? with_constant(maker(shift->first, "Mul")) : std::nullopt;
    const Node* back = scale ? maker(scale->first, "Reshape") : nullptr;
    const Node* norm = back != nullptr ? maker(back->input(0), "InstanceNormalization") : nullptr;
    const Node* split = norm != nullptr ? maker(norm->input(0), "Reshape") : nullptr;
    if (split == nullptr) return;
    const Constant *ones = constant(norm->input(1)), *zeros = constant(norm->input(2));
    const Constant *w = constant(scale->second), *b = constant(shift->second);
    const Constant* shape = constant(split->input(1));
    if (ones == nullptr || zeros == nullptr || shape == nullptr || shape->ints.size() != 3 ||
        w->dims != b->dims || w->dims.empty() || w->numel() != w->dims[0] || w->integer) {
      return;
    }
    const int64_t groups = ones->numel();
    if (groups < 1 || zeros->numel() != groups) return;
    for (int64_t i = 0; i < groups; ++i) {
      if (ones->number(i) != 1 || zeros->number(i) != 0) return;
    }
    if (shape->ints[1] != groups || w->dims[0] % groups != 0) return;
    const std::string x = split->input(0);
    const Node* whole = maker(back->input(1), "Shape");
    const Constant* fixed = constant(back->input(1));
    const bool restores = (whole != nullptr && whole->input(0) == x) ||
                          (fixed != nullptr && fixed->ints.size() == w->dims.size() + 1);
    if (!restores) return;
    Attribute count;
    count.i = groups;
    const Attribute epsilon = [&] {
      Attribute made;
      made.f = norm->number("epsilon", 1e-5);
      return made;
    }();
    replace(node, "GroupNormalization", {x, scale->second, shift->second});
    node.attributes = {{"num_groups", count}, {"epsilon", epsilon}};
  }

  void replace(Node& node, const char* op, std::vector<std::string> inputs) {
    node.op = op;
    node.domain = kFused;
    node.inputs = std::move(inputs);
    node.attributes.clear();
  }

  Graph& graph_;
  std::map<std::string, size_t> made_;
  std::map<std::string, int> reads_;
};

}  // namespace

void fuse(Graph& graph, const std::string& output) { Fuser(graph, output).run(); }

}  // namespace ridgeline::onnx
