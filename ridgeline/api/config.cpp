#include "ridgeline/api/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ridgeline/core/file.h"
#include "ridgeline/nn/config_table.h"

namespace ridgeline {
namespace {

std::string written(const Setting& setting) {
  struct Write {
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return nn::toml_number(value); }
    std::string operator()(const std::string& value) const { return nn::toml_text(value); }
    std::string operator()(const std::vector<double>& values) const {
      std::vector<std::string> numbers;
      for (const double value : values) {
        const bool whole = value == double(int64_t(value));
        numbers.push_back(whole ? fmt::format("{}", int64_t(value)) : nn::toml_number(value));
      }
      return fmt::format("[{}]", fmt::join(numbers, ", "));
    }
  };
  return std::visit(Write{}, setting);
}

}  // namespace

std::string version() { return RIDGELINE_VERSION; }

Config Config::load(const std::filesystem::path& file) {
  Config config;
  config.text_ = read_text_file(file);
  config.origin_ = file.string();
  (void)ConfigAccess::parse(config);
  return config;
}

Config Config::parse(std::string toml) {
  Config config;
  config.text_ = std::move(toml);
  return config;
}

Config& Config::add(const std::string& layer, std::initializer_list<NamedSetting> settings) {
  std::string text = fmt::format("{{ type = {}", nn::toml_text(layer));
  for (const NamedSetting& each : settings) {
    text += fmt::format(", {} = {}", each.name, written(each.value));
  }
  layers_.push_back(text + " }");
  return *this;
}

Config& Config::set(const std::string& key, const Setting& value) {
  return set(fmt::format("{}={}", key, written(value)));
}

Config& Config::set(const std::string& assignment) {
  sets_.push_back(assignment);
  return *this;
}

std::string Config::toml() const { return engine::to_toml(ConfigAccess::parse(*this)); }

engine::Config ConfigAccess::parse(const Config& config, const std::vector<std::string>& more) {
  std::string text = config.text_;
  if (!config.layers_.empty()) {
    text += fmt::format("\n[model]\nlayers = [\n  {},\n]\n", fmt::join(config.layers_, ",\n  "));
  }
  std::vector<std::string> sets = config.sets_;
  sets.insert(sets.end(), more.begin(), more.end());
  return engine::parse_config(text, config.origin_.empty() ? "config" : config.origin_, sets);
}

bool ConfigAccess::names(const Config& config, const std::string& key) {
  auto table = nn::ConfigTable::parse(config.text_, "config", config.sets_);
  const size_t dot = key.find('.');
  return table.has(key.substr(0, dot)) && table.table(key.substr(0, dot)).has(key.substr(dot + 1));
}

}  // namespace ridgeline
