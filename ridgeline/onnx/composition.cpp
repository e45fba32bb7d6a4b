#include "ridgeline/onnx/composition.h"

namespace ridgeline::onnx {

std::string Composition::add(const char* op, std::vector<std::string> inputs,
                             Attributes attributes) {
  return import(op, std::move(inputs), std::move(attributes), next());
}

void Composition::finish(const char* op, std::vector<std::string> inputs, Attributes attributes,
                         size_t output) {
  import(op, std::move(inputs), std::move(attributes), whole_.outputs[output]);
}

std::string Composition::constant(ConstantPtr value) {
  const std::string name = next();
  in_.name_constant(name, std::move(value));
  return name;
}

std::string Composition::number(double value) { return constant(make_floats({}, {float(value)})); }

std::string Composition::integers(std::vector<int64_t> values) {
  const auto count = int64_t(values.size());
  return constant(make_ints({count}, std::move(values)));
}

std::string Composition::transpose(const std::string& x, std::vector<int64_t> perm) {
  return add("Transpose", {x}, {{"perm", list(std::move(perm))}});
}

Attribute Composition::list(std::vector<int64_t> values) {
  Attribute made;
  made.ints = std::move(values);
  return made;
}

Attribute Composition::integer(int64_t value) {
  Attribute made;
  made.i = value;
  return made;
}

// No other composition has the name, not even one within this or around it.
std::string Composition::next() {
  return whole_.outputs[0] + "/" + std::to_string(in_.next_number());
}

std::string Composition::import(const char* op, std::vector<std::string> inputs,
                                Attributes attributes, const std::string& output) {
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

}  // namespace ridgeline::onnx
