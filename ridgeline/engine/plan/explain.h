#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ridgeline/core/communicator.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

struct PlanReport {
  std::string text;  // for people
  std::string json;
};

// The report of `ridgeline plan` for the training step of a config: the chosen kernels with their
// layers and why they were chosen, memory and the limit; with `all` also the program, and every
// candidate with its time or why it was refused. The JSON always has everything. With several ranks
// it is the step that they make together; collective.
PlanReport explain_plan(const Config& config, const std::filesystem::path& data_dir, bool all,
                        Communicator* ranks = nullptr);
// Reports on data that are already loaded.
PlanReport explain_plan(const Config& config, std::shared_ptr<const data::DataSet> set, bool all,
                        Communicator* ranks = nullptr);

// Returns the source of the GPU kernel that is generated for the training step of a config; without
// a GPU, the one that an H200 would get.
std::string plan_source(const Config& config, const std::filesystem::path& data_dir);

}  // namespace ridgeline::engine
