#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ridgeline/engine/sweep/sweep.h"

namespace ridgeline::engine {

// Converts a point to a line of the journal, or to a message between ranks. A point that is read
// back has everything that tables, charts and the choice of the best need, and its report as JSON.
nlohmann::json to_json(const SweepPoint& point);
SweepPoint read_point(const nlohmann::json& json);  // throws Error(data) if it is not a point

}  // namespace ridgeline::engine
