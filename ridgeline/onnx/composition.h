#pragma once

#include <map>
#include <string>
#include <vector>

#include "ridgeline/onnx/fuse.h"
#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {

// The nodes that compute the importer's current node, for operators that others express. Each is
// imported when it is added; its name is that of its output.
class Composition {
 public:
  using Attributes = std::map<std::string, Attribute>;

  explicit Composition(Importer& in) : in_(in), whole_(in.node()) {}

  std::string add(const char* op, std::vector<std::string> inputs, Attributes attributes = {}) {
    return import(op, std::move(inputs), std::move(attributes), next());
  }
  // The last node, whose output is that of the whole.
  void finish(const char* op, std::vector<std::string> inputs, Attributes attributes = {},
              size_t output = 0) {
    import(op, std::move(inputs), std::move(attributes), whole_.outputs[output]);
  }

  std::string constant(ConstantPtr value) {
    const std::string name = next();
    in_.name_constant(name, std::move(value));
    return name;
  }
  std::string number(double value) { return constant(make_floats({}, {float(value)})); }
  std::string integers(std::vector<int64_t> values) {
    const auto count = int64_t(values.size());
    return constant(make_ints({count}, std::move(values)));
  }
  std::string transpose(const std::string& x, std::vector<int64_t> perm) {
    return add("Transpose", {x}, {{"perm", list(std::move(perm))}});
  }

  static Attribute list(std::vector<int64_t> values) {
    Attribute made;
    made.ints = std::move(values);
    return made;
  }
  static Attribute integer(int64_t value) {
    Attribute made;
    made.i = value;
    return made;
  }

  const std::vector<int64_t>& dims(const std::string& name) const {
    return in_.activation_named(name)->view.dims;
  }

 private:
  // No other composition has the name, not even one within this or around it.
  std::string next() { return whole_.outputs[0] + "/" + std::to_string(in_.next_number()); }

  std::string import(const char* op, std::vector<std::string> inputs, Attributes attributes,
                     const std::string& output) {
    Node node;
    node.op = op;
    node.domain = find_operator("", op) == nullptr ? kFused : "";
    node.name = whole_.name;
    node.inputs = std::move(inputs);
    node.outputs = {output};
    node.attributes = std::move(attributes);
    in_.import_inner(node);
    return output;
  }

  Importer& in_;
  const Node& whole_;
};

// x times a matrix [extent, made] along this axis.
std::string multiply_along(Composition& make, const std::string& x, size_t axis,
                           ConstantPtr matrix);

}  // namespace ridgeline::onnx
