#include "ridgeline/core/text_format.h"
#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {

void Draft::set(const std::string& key, const std::string& value) {
  for (auto& [name, old] : settings) {
    if (name != key) continue;
    old = value;
    return;
  }
  settings.emplace_back(key, value);
}

void Draft::set_pair(const std::string& key, const std::vector<int64_t>& values) {
  set(key, values.size() == 1 ? fmt::format("{}", values[0])
                              : fmt::format("[{}]", fmt::join(values, ", ")));
}

void Draft::set_bias(std::vector<float> values) {
  set("bias", true);
  weights.push_back({"bias", std::move(values)});
  bias_from_add = 0;
}

std::string Draft::toml(const std::string& name, const std::string& inputs) const {
  std::string text = "{ ";
  if (!name.empty()) text += fmt::format("name = \"{}\", ", name);
  text += fmt::format("type = \"{}\"", type);
  if (!inputs.empty()) text += fmt::format(", inputs = [{}]", inputs);
  if (weights_of >= 0 && !name.empty()) {
    text += fmt::format(", weights_of = \"layer{}\"", weights_of);
  }
  for (const auto& [key, value] : settings) text += fmt::format(", {} = {}", key, value);
  return text + " }";
}

}  // namespace ridgeline::onnx
