#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/scaling.h"
#include "ridgeline/engine/model_io.h"
#include "ridgeline/onnx/onnx.h"

namespace ridgeline::engine {

// What an ONNX file does not say of a model.
struct OnnxOptions {
  onnx::ImportOptions graph{};
  // The outputs are logits of classes: a softmax follows. A graph that ends in one has them anyway.
  bool classes = false;
  // Samples are images of bytes, scaled so: raw or unit. None: samples are numbers.
  std::optional<data::ScaleKind> images{};
};

// An ONNX file as a model of ours. Numbers are taken as they are; a model of classes names them by
// their numbers. Throws as onnx::import_model.
LoadedModel load_onnx(const std::filesystem::path& file, const ModelOptions& options,
                      const OnnxOptions& onnx = {});

// Makes the model of a graph that has been imported; `file` is its name for messages.
LoadedModel make_model(onnx::ImportedModel imported, const std::filesystem::path& file,
                       const ModelOptions& options, const OnnxOptions& onnx = {});

// The bytes of the model file of a loaded model.
std::vector<std::byte> to_model_file(const LoadedModel& loaded);

struct OnnxExport {
  std::string bytes;
  std::vector<std::string> warnings;  // what the file does not do that `infer` does
};

// A loaded model as an ONNX file. Scaling of bytes and of numbers is part of the graph; a
// preparation of categories, logarithms or missing values is not, and a warning says so.
OnnxExport export_onnx(const LoadedModel& loaded, int64_t opset, bool half_weights);

}  // namespace ridgeline::engine
