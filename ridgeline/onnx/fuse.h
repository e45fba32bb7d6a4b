#pragma once

#include <string>

#include "ridgeline/onnx/graph.h"

namespace ridgeline::onnx {

// The domain of fused nodes.
constexpr const char* kFused = "ridgeline";

// Replaces patterns of several nodes, which exporters write if an opset has no operator, by one
// node: SiLU, GELU, hardswish, layer norm, RMS norm, group norm. Constants of the graph must be
// folded.
void fuse(Graph& graph, const std::string& output);
void fuse_norms(Graph& graph, const std::string& output);  // the norms among these

}  // namespace ridgeline::onnx
