#include "ridgeline/engine/config_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace ridgeline::engine {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;  // key, value

// Each line has a key, under its [section]; an array of several lines has an element on each.
Settings settings_of(const std::string& toml) {
  Settings settings;
  std::istringstream lines(toml);
  std::string line, section, array;
  int element = 0;
  while (std::getline(lines, line)) {
    const size_t equals = line.find(" = ");
    if (line.starts_with("  ") && line.ends_with(",")) {
      settings.emplace_back(fmt::format("{}.{}", array, element++),
                            line.substr(2, line.size() - 3));
    } else if (line.starts_with("[")) {
      section = line.substr(1, line.find(']') - 1) + ".";
    } else if (line.ends_with("= [")) {
      array = section + line.substr(0, equals);
      element = 0;
    } else if (equals != std::string::npos) {
      settings.emplace_back(section + line.substr(0, equals), line.substr(equals + 3));
    }
  }
  return settings;
}

std::string setting_value(const Settings& settings, const std::string& key) {
  const auto found = std::ranges::find(settings, key, &Settings::value_type::first);
  return found == settings.end() ? std::string() : found->second;
}

}  // namespace

std::vector<Difference> differences(const std::string& left, const std::string& right) {
  const Settings a = settings_of(left), b = settings_of(right);
  std::vector<Difference> found;
  for (const auto& [key, value] : a) {
    const std::string other = setting_value(b, key);
    if (value != other) found.push_back({key, value, other});
  }
  for (const auto& [key, value] : b) {
    if (setting_value(a, key).empty()) found.push_back({key, "", value});
  }
  return found;
}

std::vector<std::string> setting_keys(const std::string& toml) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : settings_of(toml)) keys.push_back(key);
  return keys;
}

}  // namespace ridgeline::engine
