#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/config.h"

namespace ridgeline::engine {

struct InfoReport {
  std::string text, json;
};

// Describes this build, this machine and its measured ceilings. `measure` measures the ceilings
// again; otherwise the kept ones are shown, if any. Collective over `ranks` if there are several;
// then it also names the library that carries their messages.
InfoReport info(const RunConfig& run, bool measure, Communicator* ranks = nullptr);

// Returns a Markdown table of the kernels of this build and their traits.
std::string kernel_list();

std::string version();  // "0.1.0"

// Returns the origin lines of a page: version, compiler, CPU features, date.
std::vector<std::pair<std::string, std::string>> environment();

}  // namespace ridgeline::engine
