#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/onnx/constant.h"

namespace ridgeline::onnx {

// An ONNX graph without protobuf's types, for the importer.

struct Graph;

struct Attribute {
  double f = 0;
  int64_t i = 0;
  std::string s;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
  ConstantPtr tensor;
  std::shared_ptr<const Graph> graph;  // the body of a Loop or Scan
};

struct Node {
  std::string op, domain, name;
  std::vector<std::string> inputs, outputs;  // "": an optional one that is absent
  std::map<std::string, Attribute> attributes;
  std::vector<std::string> captured{};  // values of the graph around it that its body reads

  bool has(const std::string& attribute) const { return attributes.contains(attribute); }
  int64_t integer(const std::string& attribute, int64_t fallback) const;
  double number(const std::string& attribute, double fallback) const;
  std::string text(const std::string& attribute, const std::string& fallback) const;
  std::vector<int64_t> integers(const std::string& attribute,
                                std::vector<int64_t> fallback = {}) const;
  // Input `i`, or "" if there is none.
  const std::string& input(size_t i) const;
  std::string title() const;  // "node 'conv1' (Conv)"
};

// The description of a value in the file: -1 for an open dimension.
struct ValueInfo {
  std::string name;
  bool floats = true;              // of any width; else integers or something else
  std::string type;                // ONNX's name of the element type: "FLOAT"
  bool known_shape = false;        // whether `dims` is valid
  std::vector<int64_t> dims{};     // -1: open
  std::vector<std::string> names;  // of open dimensions; "" without one
};

struct Graph {
  std::string file;
  int64_t opset = 0;  // of the default domain
  std::vector<Node> nodes;
  std::map<std::string, ConstantPtr> constants;
  std::map<std::string, std::string> untaken;  // constants of unsupported types: the type
  std::vector<ValueInfo> inputs, outputs;      // inputs without those that have a constant
  std::map<std::string, ValueInfo> values;     // inner values that the file describes
};

// Reads and checks a file. Throws Error(model) that names the file and the place in it.
Graph read_graph(const std::filesystem::path& file);

// Throws Error(model) unless every node's inputs are constants, inputs of the graph, outputs of
// earlier nodes or `outer` values, and all names differ.
void check_order(const Graph& graph, const std::vector<std::string>& outer = {});

// Returns the names that a body reads and does not define.
std::vector<std::string> captured_by(const Graph& body);

// Removes the nodes that `output` does not depend on.
void keep_only(Graph& graph, const std::string& output);

}  // namespace ridgeline::onnx
