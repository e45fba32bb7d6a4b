#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// Returns the config of the run in `folder`, changed by `sets`: from its newest undamaged
// checkpoint or, if there is none yet, from its config.toml. Throws Error(usage) if the folder
// holds no run. With several ranks only the root reads the folder; collective.
Config load_resume_config(const std::filesystem::path& folder, const std::vector<std::string>& sets,
                          Communicator* ranks);

}  // namespace ridgeline::engine
