#pragma once

#include <onnx.pb.h>

#include <filesystem>
#include <string>

#include "ridgeline/onnx/constant.h"

namespace ridgeline::onnx {

bool holds_floats(int element_type);         // of any width
bool is_taken(int element_type);             // floats, integers and booleans
std::string element_name(int element_type);  // "FLOAT16"

// Reads the tensors of one file, including bytes in other files of its folder.
class TensorReader {
 public:
  explicit TensorReader(const std::filesystem::path& model) : model_(model) {}

  // `what` names the tensor in an Error(model): "initializer 'fc.weight'".
  ConstantPtr read(const ::onnx::TensorProto& tensor, const std::string& what) const;

 private:
  std::string external(const ::onnx::TensorProto& tensor, size_t bytes,
                       const std::string& what) const;

  std::filesystem::path model_;
};

}  // namespace ridgeline::onnx
