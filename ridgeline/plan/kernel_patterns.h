#pragma once

#include <string>
#include <vector>

#include "ridgeline/plan/planner.h"

namespace ridgeline {

// Whether a kernel's name fits one of the patterns. A pattern with a '*' (any text) must fit the
// whole name; any other pattern is the beginning of one. Patterns may hold former names of kernels
// (current_kernel_name).
bool fits_any(const std::string& name, const std::vector<std::string>& patterns);

// Whether a pattern ends in the last part of a kernel's name, as demonstrations ask: that of
// "cuda.linear.naive" is named by "cuda.linear*.naive", and not by "cuda.linear".
bool names_last_part(const std::vector<std::string>& patterns, const std::string& name);

// Whether the options let a kernel in: it fits one pattern of `only`, if there are any, and none of
// `except`.
bool is_asked_for(const Kernel& kernel, const PlanOptions& options);

}  // namespace ridgeline
