#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// The config that the run in `folder` was started with, changed by `sets`: the one in its newest
// undamaged checkpoint or, where there is none yet, its config.toml. Throws usage when the folder
// holds no run. With several ranks only the root reads the folder; collective.
Config load_resume_config(const std::filesystem::path& folder, const std::vector<std::string>& sets,
                          Communicator* ranks);

}  // namespace ridgeline::engine
