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

// What `ridgeline plan` prints for the training step of a config: the chosen kernels with their
// layers and why they were chosen, memory and the limit; with `all` also the program, and every
// candidate with its time or why it was refused. The JSON always has everything. With several ranks
// it is the step that they make together; collective.
PlanReport explain_plan(const Config& config, const std::filesystem::path& data_dir, bool all,
                        Communicator* ranks = nullptr);

}  // namespace ridgeline::engine
