#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

struct PlanReport {
  std::string text;  // for people
  std::string json;
};

// What `ridgeline plan` prints for the training step of a config: the program, the chosen kernels,
// every candidate with its time or why it was refused, memory and the limit. Of several ranks: of
// the step they make together; collective.
PlanReport explain_plan(const Config& config, const std::filesystem::path& data_dir,
                        Communicator* ranks = nullptr);

}  // namespace ridgeline::engine
