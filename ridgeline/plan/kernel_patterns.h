#pragma once

#include <string>
#include <vector>

#include "ridgeline/plan/planner.h"

namespace ridgeline {

// Whether a kernel's name fits one of the patterns. A pattern with a '*' (any text) must fit the
// whole name; any other pattern is the beginning of one. Patterns may hold former names of kernels
// (current_kernel_name).
bool fits_any(const std::string& name, const std::vector<std::string>& patterns);

// Whether the options let a kernel of this name in: it fits one pattern of `only`, if there are
// any, and none of `except`.
inline bool is_asked_for(const std::string& name, const PlanOptions& options) {
  return (options.only.empty() || fits_any(name, options.only)) && !fits_any(name, options.except);
}

}  // namespace ridgeline
