#pragma once

#include <filesystem>
#include <string>

#include "ridgeline/engine/sweep/sweep.h"

namespace ridgeline::engine {

// Pictures of a sweep, for a page. `metric` as for to_chart(). Points without it are left out.

// An axis for each swept key and one for the metric; a line for each combination, coloured from the
// worst (grey) to the best (orange).
std::string parallel_coordinates_svg(const Sweep& sweep, const std::string& metric);

// Shows the metric over the two keys with the most values, as the best of the other keys'
// combinations; empty if fewer than two keys are swept.
std::string heat_map_svg(const Sweep& sweep, const std::string& metric);

// Writes report.html in `folder`: the chart, both pictures and the table.
void write_report(const Sweep& sweep, const std::string& metric,
                  const std::filesystem::path& folder);

}  // namespace ridgeline::engine
