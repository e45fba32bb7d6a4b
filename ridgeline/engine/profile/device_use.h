#pragma once

#include "ridgeline/engine/profile/profile.h"

namespace ridgeline::engine {

// Groups the launches of one pass by kernel name, in order of appearance.
std::vector<LaunchUse> group_launches(const std::vector<LaunchRecord>& launches);

// Returns the calls that take 90 % of the time of all calls together, longest first.
std::vector<ApiUse> heaviest_calls(const std::vector<ApiRecord>& calls);
// Sums up GPU functions in the same way, by their names.
std::vector<ApiUse> heaviest_functions(const std::vector<LaunchRecord>& launches);

// Returns an entry for each kind of copy, in order of appearance.
std::vector<CopyUse> copies_by_kind(const std::vector<CopyRecord>& copies);

// Returns how busy the device was between its first and last record; zeros without records.
DeviceUse device_use(const DeviceTrace& trace);

// Adds rows for each thread's calls and each stream's kernels and copies.
void add_to_timeline(const DeviceTrace& trace, prof::Timeline& timeline);

}  // namespace ridgeline::engine
