#include <algorithm>
#include <vector>

#include "ridgeline/onnx/pattern.h"

namespace ridgeline::onnx {
namespace {

class NormFuser : public Patterns {
 public:
  using Patterns::Patterns;

  // The last node of a norm is found first, so that the norm includes its scale and shift.
  void run() {
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      Node& node = graph_.nodes[i];
      if (node.outputs.size() != 1 || !node.domain.empty()) continue;
      if (node.op == "Add") group_norm(node);
      if (node.op == "Add" || node.op == "Sub" || node.op == "Mul" || node.op == "Div") norm(node);
      if (node.op == "Mul" || node.op == "Div") unit_length(node);
    }
  }

 private:
  // Returns the value whose inverse square root a node multiplies with: 1 / sqrt(v), v^-0.5, or the
  // divisor sqrt(v).
  std::optional<std::string> inverse_root(const std::string& name) const {
    if (const Node* pow = maker(name, "Pow"); pow != nullptr && is(pow->input(1), -0.5)) {
      return pow->input(0);
    }
    const Node* inverse = maker(name, "Reciprocal");
    return inverse != nullptr ? root(inverse->input(0)) : std::nullopt;
  }
  std::optional<std::string> root(const std::string& name) const {
    if (const Node* pow = maker(name, "Pow"); pow != nullptr && is(pow->input(1), 0.5)) {
      return pow->input(0);
    }
    const Node* sqrt = maker(name, "Sqrt");
    if (sqrt == nullptr) return std::nullopt;
    return sqrt->input(0);
  }
  // Finds such a value among the factors and summands of `name`.
  std::optional<std::string> find_root(const std::string& name, int depth = 0) const {
    if (const auto found = inverse_root(name)) return found;
    const auto at = made_.find(name);
    if (depth > 6 || at == made_.end()) return std::nullopt;
    const Node& node = graph_.nodes[at->second];
    const bool passes = node.domain.empty() && (node.op == "Add" || node.op == "Sub" ||
                                                node.op == "Mul" || node.op == "Div");
    if (!passes) return std::nullopt;
    if (node.op == "Div") {
      if (const auto found = root(node.input(1))) return found;
    }
    for (const std::string& each : node.inputs) {
      if (const auto found = find_root(each, depth + 1)) return found;
    }
    return std::nullopt;
  }

  std::optional<std::string> square_of(const std::string& name) const {
    if (const Node* pow = maker(name, "Pow"); pow != nullptr && is(pow->input(1), 2)) {
      return pow->input(0);
    }
    const Node* mul = maker(name, "Mul");
    if (mul != nullptr && mul->input(0) == mul->input(1)) return mul->input(0);
    return std::nullopt;
  }

  // A reduction of `x` that keeps its dimensions. No axes: all behind the channels.
  struct Reduced {
    std::string x;
    std::vector<int64_t> axes;
  };
  std::optional<Reduced> reduced(const std::string& name, const char* op) const {
    const Node* node = maker(name, op);
    if (node == nullptr || node->integer("keepdims", 1) != 1) return std::nullopt;
    Reduced found{node->input(0), node->integers("axes")};
    if (const Constant* given = constant(node->input(1)); given != nullptr) {
      found.axes = given->ints;
    }
    if (found.axes.empty()) return std::nullopt;
    return found;
  }
  std::optional<Reduced> mean_of(const std::string& name) const {
    if (const Node* pool = maker(name, "GlobalAveragePool"); pool != nullptr) {
      return Reduced{pool->input(0), {}};
    }
    return reduced(name, "ReduceMean");
  }

  // What is normalised: x, divided by the root of its mean square, or x less its mean.
  struct Core {
    std::string x, mean;  // no mean: x is not centred
    std::string root;     // the mean square plus epsilon
    std::vector<int64_t> axes;
    double epsilon = 0;
  };
  std::optional<Core> core_of(const std::string& name) const {
    const auto found = find_root(name);
    const Node* sum = found ? maker(*found, "Add") : nullptr;
    const auto parts = sum != nullptr ? with_scalar(*sum) : std::nullopt;
    const auto mean = parts ? mean_of(parts->first) : std::nullopt;
    const auto square = mean ? square_of(mean->x) : std::nullopt;
    if (!square) return std::nullopt;
    Core core{*square, "", *found, mean->axes, parts->second};
    const Node* centre = maker(core.x, "Sub");
    const auto shift = centre != nullptr ? mean_of(centre->input(1)) : std::nullopt;
    if (shift && shift->x == centre->input(0) && shift->axes == core.axes) {
      core.x = centre->input(0);
      core.mean = centre->input(1);
    }
    return core;
  }

  // A product of values and constants.
  struct Term {
    double number = 1;
    std::vector<std::string> values, constants;
  };
  using Terms = std::vector<Term>;
  // Stand for values in terms, in the order that sorting gives them; no exporter writes such names.
  static constexpr const char *kX = "\1a", *kMean = "\1b", *kInverse = "\1c";
  static constexpr size_t kMostTerms = 8;

  // Expands sums and products to terms of x, its mean and the inverse root. Empty: too many.
  Terms expand(const std::string& name, const Core& core, int depth = 0) const {
    if (const auto number = scalar(name)) return {{*number, {}, {}}};
    if (constant(name) != nullptr) return {{1, {}, {name}}};
    if (name == core.x) return {{1, {kX}, {}}};
    if (const auto mean = mean_of(name);
        mean && !core.mean.empty() && mean->x == core.x && mean->axes == core.axes) {
      return {{1, {kMean}, {}}};
    }
    if (inverse_root(name) == core.root) return {{1, {kInverse}, {}}};
    const auto at = made_.find(name);
    const Node* node = at == made_.end() ? nullptr : &graph_.nodes[at->second];
    if (node == nullptr || !node->domain.empty() || depth > 8) return {{1, {name}, {}}};
    if (node->op == "Neg") return product({{-1, {}, {}}}, expand(node->input(0), core, depth + 1));
    if (node->inputs.size() != 2) return {{1, {name}, {}}};
    const Terms left = expand(node->inputs[0], core, depth + 1);
    if (node->op == "Div" && root(node->inputs[1]) == core.root) {
      return product(left, {{1, {kInverse}, {}}});
    }
    if (node->op != "Add" && node->op != "Sub" && node->op != "Mul") return {{1, {name}, {}}};
    const Terms right = expand(node->inputs[1], core, depth + 1);
    if (node->op == "Mul") return product(left, right);
    Terms both = left;
    const Terms added = node->op == "Add" ? right : product({{-1, {}, {}}}, right);
    both.insert(both.end(), added.begin(), added.end());
    return left.empty() || right.empty() || both.size() > kMostTerms ? Terms{} : both;
  }
  static Terms product(const Terms& left, const Terms& right) {
    Terms made;
    if (left.size() * right.size() > kMostTerms) return made;
    for (const Term& a : left) {
      for (const Term& b : right) {
        Term both{a.number * b.number, a.values, a.constants};
        both.values.insert(both.values.end(), b.values.begin(), b.values.end());
        both.constants.insert(both.constants.end(), b.constants.begin(), b.constants.end());
        std::ranges::sort(both.values);
        std::ranges::sort(both.constants);
        made.push_back(std::move(both));
      }
    }
    return made;
  }

  // Matches (x - mean) / root, or x / root, times an optional scale, plus an optional shift.
  void norm(Node& node) {
    const auto core = core_of(node.outputs[0]);
    if (!core) return;
    const Term *x = nullptr, *mean = nullptr, *shift = nullptr;
    const Terms terms = expand(node.outputs[0], *core);
    for (const Term& term : terms) {
      const Term*& place = term.values.empty()                                     ? shift
                           : term.values == std::vector<std::string>{kX, kInverse} ? x
                                                                                   : mean;
      if (place != nullptr || term.constants.size() > 1) return;
      place = &term;
    }
    if (x == nullptr || x->number != 1 || (mean != nullptr) != !core->mean.empty()) return;
    if (mean != nullptr && (mean->values != std::vector<std::string>{kMean, kInverse} ||
                            mean->constants != x->constants || mean->number != -1)) {
      return;
    }
    if (shift != nullptr && (shift->number != 1 || shift->constants.size() != 1)) return;
    std::vector<std::string> inputs{core->x, "", ""};
    if (!x->constants.empty()) inputs[1] = x->constants[0];
    if (shift != nullptr) inputs[2] = shift->constants[0];
    Attribute axes, epsilon, centred;
    axes.ints = core->axes;
    epsilon.f = core->epsilon;
    centred.i = core->mean.empty() ? 0 : 1;
    replace(node, "Normalize", std::move(inputs));
    node.attributes = {{"axes", axes}, {"epsilon", epsilon}, {"centred", centred}};
  }

  // Matches x / max(|x|, a small number), with |x| from ReduceL2 or as a root of squares.
  void unit_length(Node& node) {
    if (node.op == "Mul") {
      for (const size_t i : {size_t{0}, size_t{1}}) {
        std::string name = node.input(1 - i);
        if (const Node* least = maker(name, "Min"); least != nullptr) {
          const auto bound = with_scalar(*least);
          if (!bound || bound->second < 1e6) continue;
          name = bound->first;
        }
        const auto found = inverse_root(name);
        const auto sum = found ? reduced(*found, "ReduceSum") : std::nullopt;
        if (sum && square_of(sum->x) == node.input(i)) return unit(node, *sum, node.input(i));
      }
      return;
    }
    std::string name = node.input(1);
    if (const Node* expand = maker(name, "Expand"); expand != nullptr) name = expand->input(0);
    if (const Node* clip = maker(name, "Clip"); clip != nullptr) {
      const auto least = scalar(clip->input(1));
      if (!least || *least > 1e-6 || !clip->input(2).empty()) return;
      name = clip->input(0);
    }
    const auto norm = reduced(name, "ReduceL2");
    if (norm && norm->x == node.input(0)) unit(node, *norm, node.input(0));
  }
  void unit(Node& node, const Reduced& along, const std::string& x) {
    if (along.axes.size() != 1) return;
    Attribute axis;
    axis.i = along.axes[0];
    replace(node, "LpNormalization", {x});
    node.attributes = {{"axis", axis}};
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
};

}  // namespace

void fuse_norms(Graph& graph, const std::string& output) { NormFuser(graph, output).run(); }

}  // namespace ridgeline::onnx
