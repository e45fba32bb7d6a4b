#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layer.h"

namespace ridgeline::nn {

// Reads the layer that a table { type = "linear", ... } describes. Unknown types, keys and bad
// values are Error(usage) with their place.
LayerPtr read_layer(ConfigTable& table);

std::vector<std::string> layer_types();

}  // namespace ridgeline::nn
