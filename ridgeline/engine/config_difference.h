#pragma once

#include <string>
#include <vector>

namespace ridgeline::engine {

// A key with other values in two configs; "" stands for none.
struct Difference {
  std::string key, left, right;  // "train.batch", "17", "16"; "model.layers.0" of a layer
};

// Of two texts as to_toml(Config) writes them, in their order.
std::vector<Difference> differences(const std::string& left, const std::string& right);

// The keys of such a text: "train.batch".
std::vector<std::string> setting_keys(const std::string& toml);

}  // namespace ridgeline::engine
