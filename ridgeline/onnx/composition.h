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

  std::string add(const char* op, std::vector<std::string> inputs, Attributes attributes = {});
  // The last node, whose output is that of the whole.
  void finish(const char* op, std::vector<std::string> inputs, Attributes attributes = {},
              size_t output = 0);

  std::string constant(ConstantPtr value);
  std::string number(double value);
  std::string integers(std::vector<int64_t> values);
  std::string transpose(const std::string& x, std::vector<int64_t> perm);

  static Attribute list(std::vector<int64_t> values);
  static Attribute integer(int64_t value);

  const std::vector<int64_t>& dims(const std::string& name) const {
    return in_.activation_named(name)->view.dims;
  }

 private:
  std::string next();
  std::string import(const char* op, std::vector<std::string> inputs, Attributes attributes,
                     const std::string& output);

  Importer& in_;
  const Node& whole_;
};

// x times a matrix [extent, made] along this axis.
std::string multiply_along(Composition& make, const std::string& x, size_t axis,
                           ConstantPtr matrix);

}  // namespace ridgeline::onnx
