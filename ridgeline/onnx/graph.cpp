#include "ridgeline/onnx/graph.h"

#include <algorithm>
#include <set>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::onnx {

int64_t Node::integer(const std::string& attribute, int64_t fallback) const {
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? fallback : found->second.i;
}
double Node::number(const std::string& attribute, double fallback) const {
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? fallback : found->second.f;
}
std::string Node::text(const std::string& attribute, const std::string& fallback) const {
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? fallback : found->second.s;
}
std::vector<int64_t> Node::integers(const std::string& attribute,
                                    std::vector<int64_t> fallback) const {
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? std::move(fallback) : found->second.ints;
}

const std::string& Node::input(size_t i) const {
  static const std::string kNone;
  return i < inputs.size() ? inputs[i] : kNone;
}

std::string Node::title() const {
  const std::string& known = !name.empty() ? name : outputs.empty() ? name : outputs.front();
  return fmt::format("node {} ({}{})", quote(known),
                     domain.empty() || domain == "ai.onnx" ? "" : printable(domain) + ".",
                     printable(op));
}

std::vector<std::string> captured_by(const Graph& body) {
  std::set<std::string> own, read;
  for (const auto& [name, value] : body.constants) own.insert(name);
  for (const auto& [name, type] : body.untaken) own.insert(name);
  for (const ValueInfo& input : body.inputs) own.insert(input.name);
  for (const Node& node : body.nodes) {
    own.insert(node.outputs.begin(), node.outputs.end());
    read.insert(node.inputs.begin(), node.inputs.end());
    read.insert(node.captured.begin(), node.captured.end());
  }
  for (const ValueInfo& output : body.outputs) read.insert(output.name);
  std::vector<std::string> captured;
  for (const std::string& name : read) {
    if (!name.empty() && !own.contains(name)) captured.push_back(name);
  }
  return captured;
}

void check_order(const Graph& graph, const std::vector<std::string>& outer) {
  std::set<std::string> known(outer.begin(), outer.end());
  for (const auto& [name, value] : graph.constants) known.insert(name);
  for (const auto& [name, type] : graph.untaken) known.insert(name);
  for (const ValueInfo& input : graph.inputs) known.insert(input.name);
  for (const Node& node : graph.nodes) {
    std::vector<std::string> inputs = node.inputs;
    inputs.insert(inputs.end(), node.captured.begin(), node.captured.end());
    for (const std::string& input : inputs) {
      if (input.empty() || known.contains(input)) continue;
      throw_error(ErrorKind::model,
                  "{}: {} reads {}, which no node before it gives and no initializer holds: the "
                  "file is damaged, or its nodes form a circle",
                  graph.file, node.title(), quote(input));
    }
    for (const std::string& output : node.outputs) {
      if (output.empty() || known.insert(output).second) continue;
      throw_error(ErrorKind::model, "{}: {} gives {}, which there is already", graph.file,
                  node.title(), quote(output));
    }
  }
  for (const ValueInfo& output : graph.outputs) {
    if (known.contains(output.name)) continue;
    throw_error(ErrorKind::model, "{}: no node gives the output {}", graph.file,
                quote(output.name));
  }
}

void keep_only(Graph& graph, const std::string& output) {
  std::set<std::string> wanted{output};
  std::vector<Node> kept;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    const bool needed = std::ranges::any_of(
        node.outputs, [&](const std::string& name) { return wanted.contains(name); });
    if (!needed) continue;
    wanted.insert(node.inputs.begin(), node.inputs.end());
    wanted.insert(node.captured.begin(), node.captured.end());
    // An output that nothing reads is treated as absent.
    for (std::string& name : node.outputs) {
      if (!wanted.contains(name)) name.clear();
    }
    kept.push_back(std::move(node));
  }
  std::ranges::reverse(kept);
  graph.nodes = std::move(kept);
}

}  // namespace ridgeline::onnx
