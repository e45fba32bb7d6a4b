#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::test {

// The part of the ONNX format that the backend test data needs, read from protobuf's wire format by
// hand, so that the test does not need protobuf. Throws Error(data) on other bytes.

struct OnnxTensor {
  enum class Type { fp32 = 1, uint8 = 2, int32 = 6, int64 = 7, fp16 = 10, fp64 = 11 };

  std::string name;
  Type type = Type::fp32;
  std::vector<int64_t> dims;
  std::vector<double> values;  // of fp32, fp64, int32, int64 and uint8 tensors

  int64_t numel() const;
};

struct OnnxAttribute {
  double f = 0;
  int64_t i = 0;
  std::string s;
  std::vector<int64_t> ints;
};

struct OnnxNode {
  std::string op, domain;
  std::vector<std::string> inputs, outputs;  // an absent optional one is ""
  std::map<std::string, OnnxAttribute> attributes;

  int64_t integer(const std::string& name, int64_t fallback) const;
  double number(const std::string& name, double fallback) const;
  std::string text(const std::string& name, const std::string& fallback) const;
  std::vector<int64_t> integers(const std::string& name, std::vector<int64_t> fallback) const;
};

struct OnnxModel {
  int64_t opset = 0;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<std::string> inputs;  // of the graph
};

OnnxModel read_onnx_model(const std::filesystem::path& file);
OnnxTensor read_onnx_tensor(const std::filesystem::path& file);

}  // namespace ridgeline::test
