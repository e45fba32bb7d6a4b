#pragma once

#include <onnx.pb.h>

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ridgeline::onnx {

using Proto = ::onnx::TensorProto;
using AttributeValue =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>>;
using Attributes = std::vector<std::pair<std::string, AttributeValue>>;

// A graph under construction: nodes and initializers with unique names.
class GraphWriter {
 public:
  GraphWriter(int64_t opset, bool half_weights);

  int64_t opset() const { return opset_; }
  // Appends a node of one output and returns that output's name. `output` is a name to use.
  std::string node(const std::string& op, const std::vector<std::string>& inputs,
                   const Attributes& attributes = {}, const std::string& output = {});
  // A node of ai.onnx.ml, the operators for tables.
  std::string ml_node(const std::string& op, const std::vector<std::string>& inputs,
                      const Attributes& attributes);
  // A tensor of floats, kept in fp16 where weights are. One that is there already is used again.
  std::string weight(const std::string& name, const std::vector<int64_t>& dims,
                     std::span<const float> values);
  // Adds a constant in fp32, whatever the type of the weights.
  std::string floats(const std::vector<int64_t>& dims, std::span<const float> values);
  std::string scalar(double value);
  std::string ints(const std::vector<int64_t>& values);  // of one dimension
  std::string index(int64_t value);                      // of none

  // The dimensions are those of one sample. Returns the name of the input, which differs from the
  // one given where a value of the graph has it already.
  std::string input(const std::string& name, int type, std::span<const int64_t> sample);
  void output(const std::string& name, std::span<const int64_t> sample);

  std::string bytes() const;  // throws usage past protobuf's limit of 2 GB

 private:
  std::string fresh(const std::string& what);
  ::onnx::TensorProto& tensor(const std::string& name, int type, const std::vector<int64_t>& dims);
  static void describe(::onnx::ValueInfoProto& value, const std::string& name, int type,
                       std::span<const int64_t> sample);

  int64_t opset_;
  bool half_;
  int count_ = 0;
  std::set<std::string> weights_;
  ::onnx::ModelProto model_;
  ::onnx::GraphProto& graph_;
};

}  // namespace ridgeline::onnx
