#pragma once

#include <string>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// Returns the settings of this rank's workers in an inference run, one for each device that
// run.device names ("cuda:all", "cuda:0,1", "cpu,cpu", or a single one), each with its share of the
// threads. Collective. Throws Error(usage).
std::vector<RunConfig> device_workers(const RunConfig& run, Communicator* ranks);

}  // namespace ridgeline::engine
