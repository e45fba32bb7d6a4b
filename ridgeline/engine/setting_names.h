#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::engine {

// The full key of the setting that people mean by a short word: "train.optimizer.lr" for "lr",
// "learning-rate" and "train.lr"; "" where no setting, or more than one, goes by it.
std::string setting_meant(std::string_view word);

// Throws usage for a `--set` whose key does not exist where another one is plainly meant. Other
// unknown keys are found when the config is read.
void check_set_names(const std::vector<std::string>& sets);

}  // namespace ridgeline::engine
