#pragma once

#include <string>
#include <vector>

namespace ridgeline::engine {

// A key whose values differ between two configs; "" stands for no value.
struct Difference {
  std::string key, left, right;  // "train.batch", "17", "16"; "model.layers.0" of a layer
};

// Compares two texts written by to_toml(Config), in their order.
std::vector<Difference> differences(const std::string& left, const std::string& right);

// Returns the keys of such a text: "train.batch".
std::vector<std::string> setting_keys(const std::string& toml);

}  // namespace ridgeline::engine
