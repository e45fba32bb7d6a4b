#include "ridgeline/engine/setting_names.h"

#include <algorithm>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/engine/config_difference.h"

namespace ridgeline::engine {
namespace {

// Names of settings in other tools, and keys of tables that a config writes in one line.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"lr", "train.optimizer.lr"},
    {"learning_rate", "train.optimizer.lr"},
    {"rate", "train.optimizer.lr"},
    {"momentum", "train.optimizer.momentum"},
    {"weight_decay", "train.optimizer.weight_decay"},
    {"wd", "train.optimizer.weight_decay"},
    {"batch_size", "train.batch"},
    {"bs", "train.batch"},
    {"epoch", "train.epochs"},
    {"num_epochs", "train.epochs"},
    {"steps", "train.max_steps"},
    {"warmup", "train.schedule.warmup_steps"},
    {"warmup_steps", "train.schedule.warmup_steps"},
    {"clip", "train.clip_norm"},
    {"dataset", "data.name"},
    {"dtype", "run.precision"},
};

// Every key of a config that has a line of its own.
const std::vector<std::string>& known_keys() {
  static const std::vector<std::string> kKeys = setting_keys(to_toml(Config{}));
  return kKeys;
}

std::string last_part(std::string_view key) {
  std::string part(key.substr(key.rfind('.') + 1));
  std::ranges::replace(part, '-', '_');
  return part;
}

}  // namespace

std::string setting_meant(std::string_view word) {
  const std::string part = last_part(word);
  for (const auto& [short_word, key] : kWords) {
    if (part == short_word) return std::string(key);
  }
  std::string found;
  for (const std::string& key : known_keys()) {
    if (last_part(key) != part) continue;
    if (!found.empty()) return {};
    found = key;
  }
  return found;
}

void check_set_names(const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos) continue;
    const std::string key(trimmed(std::string_view(set).substr(0, equals)));
    // A misspelt section is reported when the config is read, and layers have keys of their own.
    const std::string section = key.substr(0, key.find('.'));
    const bool known = section == "data" || section == "train" || section == "run";
    const bool nested = std::ranges::count(key, '.') > 1;
    if (nested || known != (section != key) || key == "model") continue;
    if (std::ranges::find(known_keys(), key) != known_keys().end()) continue;
    const std::string meant = setting_meant(key);
    if (meant.empty() || meant == key) continue;
    throw_error(ErrorKind::usage, "--set {}: there is no setting {}; did you mean --set {}={}?",
                printable(set), quote(key), meant, printable(trimmed(set.substr(equals + 1))));
  }
}

}  // namespace ridgeline::engine
