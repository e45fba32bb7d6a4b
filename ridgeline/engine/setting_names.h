#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::engine {

// Returns the full key of the setting that a short word means: "train.optimizer.lr" for "lr",
// "learning-rate" and "train.lr"; "" if no setting, or more than one, matches.
std::string setting_meant(std::string_view word);

// Throws Error(usage) for a `--set` whose key does not exist if another one is obviously meant.
// Other unknown keys are found when the config is read.
void check_set_names(const std::vector<std::string>& sets);

}  // namespace ridgeline::engine
