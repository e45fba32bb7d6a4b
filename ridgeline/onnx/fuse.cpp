#include "ridgeline/onnx/fuse.h"

#include <algorithm>
#include <vector>

#include "ridgeline/onnx/pattern.h"

namespace ridgeline::onnx {
namespace {

class Fuser : public Patterns {
 public:
  using Patterns::Patterns;

  void run() {
    for (Node& node : graph_.nodes) {
      if (node.outputs.size() != 1 || !node.domain.empty()) continue;
      if (node.op == "Mul" || node.op == "Div") product(node);
      if (node.op == "Where") softplus(node);
      if (node.op == "Gather") wrapped_index(node);
      if (node.op == "Log") log_sigmoid(node);
    }
  }

 private:
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
  // Matches 1 + erf(x / sqrt 2), or erfc(-x / sqrt 2), which tf2onnx writes.
  bool is_erf_sum(const std::string& name, const std::string& x) const {
    const auto is_scaled = [&](const Node& node, double factor) {
      const Scaled found = scaled(node.input(0));
      return found.base == x && std::abs(found.factor - factor) < 1e-6;
    };
    if (const Node* erfc = maker(name, "Erfc")) return is_scaled(*erfc, -std::sqrt(0.5));
    const Node* sum = maker(name, "Add");
    const auto parts = sum != nullptr ? with_scalar(*sum) : std::nullopt;
    const Node* erf = parts && parts->second == 1 ? maker(parts->first, "Erf") : nullptr;
    return erf != nullptr && is_scaled(*erf, std::sqrt(0.5));
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

  void log_sigmoid(Node& node) {
    const Node* sigmoid = maker(node.input(0), "Sigmoid");
    if (sigmoid != nullptr) replace(node, "LogSigmoid", {sigmoid->input(0)});
  }

  // A choice of two values by a condition, which some exporters write as sums of products.
  struct Choice {
    std::string condition, first, second;
  };
  std::optional<Choice> choice(const std::string& name) const {
    if (const Node* where = maker(name, "Where"); where != nullptr) {
      return Choice{where->input(0), where->input(1), where->input(2)};
    }
    const Node* sum = maker(name, "Add");
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const Node* left = sum != nullptr ? maker(sum->input(i), "Mul") : nullptr;
      const Node* right = sum != nullptr ? maker(sum->input(1 - i), "Mul") : nullptr;
      if (left == nullptr || right == nullptr) return std::nullopt;
      for (const size_t a : {size_t{0}, size_t{1}}) {
        for (const size_t b : {size_t{0}, size_t{1}}) {
          const Node *yes = maker(left->input(a), "Cast"), *no = maker(right->input(b), "Cast");
          const Node* inverse = no != nullptr ? maker(no->input(0), "Not") : nullptr;
          if (yes == nullptr || inverse == nullptr || inverse->input(0) != yes->input(0)) continue;
          return Choice{yes->input(0), left->input(1 - a), right->input(1 - b)};
        }
      }
    }
    return std::nullopt;
  }

  // Gather counts negative indices from the end, so that exporters need not do it before.
  void wrapped_index(Node& node) {
    const auto found = choice(node.input(1));
    const Node* less = found ? maker(found->condition, "Less") : nullptr;
    const Node* sum = found ? maker(found->first, "Add") : nullptr;
    if (less == nullptr || sum == nullptr) return;
    std::string index = less->input(0);
    if (const Node* cast = maker(index, "Cast"); cast != nullptr && index != found->second) {
      index = cast->input(0);
    }
    const Constant *zero = constant(less->input(1)), *size = constant(beside(*sum, index));
    const Constant* table = constant(node.input(0));
    const auto axis = size_t(std::max<int64_t>(0, node.integer("axis", 0)));
    if (zero == nullptr || !zero->all_zero() || size == nullptr || size->kept() != 1 ||
        table == nullptr || axis >= table->dims.size() || index != found->second ||
        size->number(0) != double(table->dims[axis])) {
      return;
    }
    node.inputs[1] = index;
  }
};

}  // namespace

void fuse(Graph& graph, const std::string& output) {
  Fuser(graph, output).run();
  fuse_norms(graph, output);
}

}  // namespace ridgeline::onnx
