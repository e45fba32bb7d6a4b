#include "ridgeline/onnx/constant.h"

#include <algorithm>

#include "ridgeline/core/shape.h"

namespace ridgeline::onnx {

int64_t Constant::numel() const {
  int64_t product = 1;
  for (const int64_t extent : dims) {
    if (extent == kBatch) return -1;
    product = checked_mul(product, extent, "a tensor of the graph");
  }
  return product;
}

bool Constant::all_zero() const {
  return std::ranges::all_of(floats, [](float value) { return value == 0; }) &&
         std::ranges::all_of(ints, [](int64_t value) { return value == 0; });
}

ConstantPtr make_ints(std::vector<int64_t> dims, std::vector<int64_t> values) {
  auto made = std::make_shared<Constant>();
  made->dims = std::move(dims);
  made->integer = true;
  made->ints = std::move(values);
  return made;
}

ConstantPtr make_floats(std::vector<int64_t> dims, std::vector<float> values) {
  auto made = std::make_shared<Constant>();
  made->dims = std::move(dims);
  made->floats = std::move(values);
  return made;
}

std::string dims_text(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    text += dims[i] == kBatch ? "N" : dims[i] < 0 ? "?" : std::to_string(dims[i]);
  }
  return text + "]";
}

}  // namespace ridgeline::onnx
