#pragma once

#include <string>
#include <vector>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/graph.h"

namespace ridgeline::nn {

// Reads the graph that the arrays `layers` and `heads` of a table describe: layers with names and
// inputs, residual blocks, blocks that repeat, several outputs (docs/config.md). Errors are
// Error(usage) with their place.
Graph read_graph(ConfigTable& table);

std::string to_toml(const Head& head);  // an element of the array `heads`

// An element of the array `layers`: `layer`, as Layer::to_toml() writes it, with its name and
// inputs if it has any.
std::string layer_toml(const std::string& layer, const std::string& name,
                       const std::vector<std::string>& inputs);

}  // namespace ridgeline::nn
