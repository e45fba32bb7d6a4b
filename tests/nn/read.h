#pragma once

#include <string>

#include "ridgeline/nn/layers.h"

namespace ridgeline::nn {

// A layer as a config writes it: { type = "linear", out = 3 }
inline LayerPtr read(const std::string& text) {
  ConfigTable root = ConfigTable::parse("layer = " + text, "t.toml");
  ConfigTable table = root.table("layer");
  return read_layer(table);
}

}  // namespace ridgeline::nn
