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

// This build, this machine and what was measured on it. `measure` measures the ceilings again;
// else those kept from before are shown, if any. Collective over `ranks` where they are several:
// then it names what carries their messages too.
InfoReport info(const RunConfig& run, bool measure, Communicator* ranks = nullptr);

// A Markdown table of the kernels of this build and what their traits say.
std::string kernel_list();

std::string version();  // "0.1.0"

// What a page says about where it was made: version, compiler, CPU features, date.
std::vector<std::pair<std::string, std::string>> environment();

}  // namespace ridgeline::engine
