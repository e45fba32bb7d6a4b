#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridgeline {

// Returns the current name of a kernel that had another name in an earlier version
// (kernel_aliases.inc), and any other name unchanged. Plans kept in caches and checkpoints, and
// patterns of --kernels, may hold former names.
std::string current_kernel_name(std::string_view name);
std::vector<std::string> current_kernel_names(std::vector<std::string> names);

}  // namespace ridgeline
