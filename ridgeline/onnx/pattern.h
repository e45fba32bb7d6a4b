#pragma once

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ridgeline/onnx/fuse.h"

namespace ridgeline::onnx {

// A graph with the producer of each value and the number of its readers, to match patterns of
// nodes.
class Patterns {
 public:
  Patterns(Graph& graph, const std::string& output) : graph_(graph) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const std::string& name : graph.nodes[i].outputs) {
        if (!name.empty()) made_[name] = i;
      }
      for (const std::string& name : graph.nodes[i].inputs) ++reads_[name];
      for (const std::string& name : graph.nodes[i].captured) ++reads_[name];
    }
    ++reads_[output];
  }

 protected:
  // Returns the node that produces the value, if it has this operator.
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

  // Follows products with constants of one element: the value is `factor` times `base`.
  struct Scaled {
    std::string base;
    double factor = 1;
  };
  Scaled scaled(const std::string& name) const {
    Scaled found{name};
    for (int depth = 0; depth < 8; ++depth) {
      const Node *neg = maker(found.base, "Neg"), *mul = maker(found.base, "Mul");
      const Node* div = maker(found.base, "Div");
      const auto parts = mul != nullptr ? with_scalar(*mul) : std::nullopt;
      if (neg != nullptr && !neg->inputs.empty()) {
        found = {neg->inputs[0], -found.factor};
      } else if (parts) {
        found = {parts->first, found.factor * parts->second};
      } else if (div != nullptr && scalar(div->input(1)) && *scalar(div->input(1)) != 0) {
        found = {div->inputs[0], found.factor / *scalar(div->input(1))};
      } else {
        break;
      }
    }
    return found;
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

}  // namespace ridgeline::onnx
