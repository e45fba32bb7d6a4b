#include "ridgeline/api/model.h"
#include "ridgeline/engine/onnx_model.h"

namespace ridgeline {

Model Model::from_onnx(const std::filesystem::path& file, const std::vector<int64_t>& input_shape,
                       bool classes, const DeviceOptions& options) {
  engine::OnnxOptions onnx;
  onnx.classes = classes;
  if (!input_shape.empty()) onnx.graph.input = Shape(input_shape);
  return ModelAccess::make(engine::load_onnx(file, api::model_options(options), onnx), options);
}

std::string Model::to_onnx(int64_t opset, bool half_weights,
                           std::vector<std::string>* warnings) const {
  const std::scoped_lock lock(state_->mutex);
  engine::OnnxExport made = engine::export_onnx(state_->loaded, opset, half_weights);
  if (warnings != nullptr) *warnings = std::move(made.warnings);
  return std::move(made.bytes);
}

}  // namespace ridgeline
