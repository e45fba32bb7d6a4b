#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/scaling.h"
#include "ridgeline/engine/model_io.h"
#include "ridgeline/onnx/onnx.h"

namespace ridgeline::engine {

// Facts about a model that an ONNX file does not contain.
struct OnnxOptions {
  onnx::ImportOptions graph{};
  // The outputs are logits of classes: a softmax follows. A graph that ends in a softmax has
  // classes anyway.
  bool classes = false;
  // Samples are images of bytes, scaled as raw or unit. Unset: samples are numbers.
  std::optional<data::ScaleKind> images{};
};

// Loads an ONNX file as a model. Numbers are not scaled; classes are named by their numbers. Throws
// like onnx::import_model.
LoadedModel load_onnx(const std::filesystem::path& file, const ModelOptions& options,
                      const OnnxOptions& onnx = {});

// Makes the model of an imported graph; `file` is its name for messages.
LoadedModel make_model(onnx::ImportedModel imported, const std::filesystem::path& file,
                       const ModelOptions& options, const OnnxOptions& onnx = {});

// Returns the bytes of the model file of a loaded model.
std::vector<std::byte> to_model_file(const LoadedModel& loaded);

struct OnnxExport {
  std::string bytes;
  std::vector<std::string> warnings;  // what `infer` does that the file does not
};

// Converts a loaded model to an ONNX file. Scaling of bytes and of numbers is part of the graph; a
// preparation of categories, logarithms or missing values is not, and a warning says so.
OnnxExport export_onnx(const LoadedModel& loaded, int64_t opset, bool half_weights);

}  // namespace ridgeline::engine
