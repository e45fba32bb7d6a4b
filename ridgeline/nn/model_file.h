#pragma once

#include <string>
#include <vector>

#include "ridgeline/nn/model.h"
#include "ridgeline/nn/safetensors.h"

namespace ridgeline::nn {

// A model file is safetensors with the weights under their PyTorch names and, in the metadata:
//   format             "pt", what Python's reader expects
//   ridgeline.version  "1"
//   ridgeline.config   the resolved config as TOML
//   ridgeline.input    the shape of one sample, "28x28"
Metadata model_metadata(const Model& model, const std::string& config);
std::vector<TensorEntry> model_tensors(const Model& model);  // views of the weights

// Throws Error(`kind`) that lists the weights that are not finite, before `what` is written.
void require_finite(const Model& model, const std::string& what, ErrorKind kind);

struct ModelDescription {
  std::string config;
  Shape input;
};

// Throws Error(model) if the metadata is missing, malformed or of a newer version.
ModelDescription read_description(const TensorFile& file);

struct LoadOptions {
  bool strict = false;        // NaN and infinite weights are errors
  std::string ignore_prefix;  // tensors with this prefix are not part of the model; empty: none
};

// Throws one Error(model) that lists every missing, extra and misshaped tensor. Call it before
// allocating a model that only the file describes: its description may claim any size.
void check_tensors(const TensorFile& file, const Outline& model, const LoadOptions& options = {});

// Fills the model's weights from the file, converting between float types, and returns warnings
// (one line each). The weights' memory stays in place. Throws like check_tensors; the model is then
// unchanged.
std::vector<std::string> load_weights(const TensorFile& file, Model& model,
                                      const LoadOptions& options = {});

}  // namespace ridgeline::nn
