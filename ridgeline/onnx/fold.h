#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridgeline/onnx/graph.h"

namespace ridgeline::onnx {

// Returns the output of a node whose inputs are all known, for the operators that compute shapes or
// that weights pass through. An absent input is null. Returns null for other operators, if the
// values do not fit, or if the output would have more than `most` elements.
ConstantPtr fold(const Node& node, const std::vector<ConstantPtr>& inputs, int64_t most);

// Returns the parts that a Split makes of a constant; empty if they do not fit.
std::vector<ConstantPtr> fold_split(const Node& node, const std::vector<ConstantPtr>& inputs);

// The axes of Squeeze, Unsqueeze and reductions: an attribute in old opsets, an input in new ones.
std::optional<std::vector<int64_t>> axes_of(const Node& node, const ConstantPtr& input);

}  // namespace ridgeline::onnx
