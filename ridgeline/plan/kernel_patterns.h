#pragma once

#include <string>
#include <vector>

#include "ridgeline/plan/planner.h"

namespace ridgeline {

// Returns whether a kernel's name matches one of the patterns. A pattern with a '*' (any text) must
// match the whole name; any other pattern is a prefix. Patterns may hold former names of kernels
// (current_kernel_name).
bool fits_any(const std::string& name, const std::vector<std::string>& patterns);

// Returns whether a pattern includes the last part of the kernel's name, which demonstrations
// require: "cuda.linear*.naive" names the last part of "cuda.linear.naive", "cuda.linear" does not.
bool names_last_part(const std::vector<std::string>& patterns, const std::string& name);

// Returns whether the options allow a kernel: it matches a pattern of `only`, if there are any, and
// none of `except`.
bool is_asked_for(const Kernel& kernel, const PlanOptions& options);

}  // namespace ridgeline
