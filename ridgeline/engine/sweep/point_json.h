#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ridgeline/engine/sweep/sweep.h"

namespace ridgeline::engine {

// A point as a line of the journal, or as one rank sends it to another. What is read back has all
// that tables, charts and the choice of the best need, and its report as JSON.
nlohmann::json to_json(const SweepPoint& point);
SweepPoint read_point(const nlohmann::json& json);  // throws data when it is no such point

}  // namespace ridgeline::engine
