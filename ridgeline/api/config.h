#pragma once

#include "ridgeline/engine/config.h"
#include "ridgeline/ridgeline.h"

namespace ridgeline {

// Gives the library access to the parsed form of a public config.
struct ConfigAccess {
  // `more` are applied after the config's own settings, like --set.
  static engine::Config parse(const Config& config, const std::vector<std::string>& more = {});
  // Whether the config, or a set() of it, names this key.
  static bool names(const Config& config, const std::string& key);
  // The settings of a config whose data are the caller's arrays.
  static std::vector<std::string> of_arrays() {
    return {"data.train=\"arrays in memory\"", "data.target=\"targets\""};
  }
};

}  // namespace ridgeline
