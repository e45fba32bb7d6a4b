#pragma once

#include <string>
#include <vector>

#include "ridgeline/plan/planner.h"

namespace ridgeline {

// Whether the options' patterns let a row of this name in: of `only`, when there are any, it fits
// one, and of `except` none. A pattern with a '*' (any text) must fit the whole name; any other is
// the beginning of one.
bool fits_any(const std::string& name, const std::vector<std::string>& patterns);
inline bool is_asked_for(const std::string& name, const PlanOptions& options) {
  return (options.only.empty() || fits_any(name, options.only)) && !fits_any(name, options.except);
}

}  // namespace ridgeline
