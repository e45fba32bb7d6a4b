#include "ridgeline/onnx/exporter.h"

namespace ridgeline::onnx {
namespace {

Ints twice(const Ints& values) {
  Ints both = values;
  both.insert(both.end(), values.begin(), values.end());
  return both;
}

int64_t outputs(int64_t extent, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  return (extent + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

// [h, w] of one channel becomes [1, h, w].
Ints with_channels(const Shape& shape, size_t axes) {
  Ints dims(shape.dims().begin(), shape.dims().end());
  if (dims.size() == axes) dims.insert(dims.begin(), 1);
  return dims;
}

}  // namespace

void Exporter::conv(nn::ConfigTable& table, size_t axes) {
  const Ints kernel = table.integers("kernel", axes, std::nullopt);
  const Ints stride = table.integers("stride", axes, 1), pad = table.integers("padding", axes, 0);
  const Ints dilation = table.integers("dilation", axes, 1);
  reshape(with_channels(shape_, axes));
  std::vector<std::string> inputs{x_, weight("weight")};
  if (has("bias")) inputs.push_back(weight("bias"));
  x_ = graph_.node("Conv", inputs,
                   {{"kernel_shape", kernel},
                    {"strides", stride},
                    {"pads", twice(pad)},
                    {"dilations", dilation},
                    {"group", table.integer("groups", 1)}});
  Ints made{dims("weight")[0]};
  for (size_t i = 0; i < axes; ++i) {
    made.push_back(outputs(shape_[int(i) + 1], kernel[i], stride[i], pad[i], dilation[i]));
  }
  shape_ = Shape(made);
}

// Makes the one-hot columns that our layer never stores: a code past the symbols is a column of
// zeros, as OneHot gives for an index out of range.
void Exporter::one_hot_conv() {
  if (graph_.opset() < 9) {
    throw_error(ErrorKind::usage, "layer {} (onehot_conv1d): needs --opset 9 or more", path());
  }
  const Ints weights = dims("weight");
  reshape({shape_.numel()});
  const float values[] = {0.0f, 1.0f};
  const std::string hot = graph_.node(
      "OneHot", {x_, graph_.index(weights[1]), graph_.floats({2}, values)}, {{"axis", int64_t{1}}});
  std::vector<std::string> inputs{hot, weight("weight")};
  if (has("bias")) inputs.push_back(weight("bias"));
  x_ = graph_.node("Conv", inputs, {{"kernel_shape", Ints{weights[2]}}});
  shape_ = {weights[0], shape_[0] - weights[2] + 1};
}

void Exporter::pool(nn::ConfigTable& table, bool max, size_t axes) {
  const Ints kernel = table.integers("kernel", axes, std::nullopt);
  const Ints stride = table.integers("stride", axes, std::nullopt);
  const Ints pad = table.integers("padding", axes, 0);
  reshape(with_channels(shape_, axes));
  Attributes attributes{{"kernel_shape", kernel}, {"strides", stride}, {"pads", twice(pad)}};
  if (!max) {
    attributes.emplace_back("count_include_pad", int64_t{table.boolean("count_include_pad", true)});
  }
  x_ = graph_.node(max ? "MaxPool" : "AveragePool", {x_}, attributes);
  Ints made{shape_[0]};
  for (size_t i = 0; i < axes; ++i) {
    made.push_back(outputs(shape_[int(i) + 1], kernel[i], stride[i], pad[i], 1));
  }
  shape_ = Shape(made);
}

}  // namespace ridgeline::onnx
