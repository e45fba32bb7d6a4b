#pragma once

#include <string>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

// The devices that this rank of an inference run uses, each with its share of the threads:
// "cuda:all", "cuda:0,1", "cpu,cpu", or one as anywhere else. Collective. Throws usage.
std::vector<RunConfig> lanes_of(const RunConfig& run, Communicator* ranks);

}  // namespace ridgeline::engine
