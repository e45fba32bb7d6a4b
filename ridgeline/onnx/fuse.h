#pragma once

#include <string>

#include "ridgeline/onnx/graph.h"

namespace ridgeline::onnx {

// The domain of nodes that stand for several of the file.
constexpr const char* kFused = "ridgeline";

// Finds what exporters write as several nodes because an opset has no operator for it, and puts one
// node in their place: SiLU, GELU, hardswish, layer norm, RMS norm, group norm. Constants of the
// graph must be folded.
void fuse(Graph& graph, const std::string& output);

}  // namespace ridgeline::onnx
