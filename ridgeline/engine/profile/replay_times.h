#pragma once

#include <optional>
#include <vector>

#include "ridgeline/core/device_trace.h"

namespace ridgeline::engine {

// The times of kernels inside whole steps of a plan, where they follow one another as in a run.
struct ReplayTimes {
  std::vector<std::vector<double>> kernels;  // [kernel][step], seconds
};

// `alone` has what one pass over each kernel launches, `replay` a recording of several whole steps.
// A launch of the replay belongs to the kernel that launches its like: the k-th of that name and
// size in a step to the k-th kernel that has one. Launches that overlap share the time equally, so
// the kernels' times add up to the time in which any of their launches ran. Returns nothing if the
// replay is not made of such steps.
std::optional<ReplayTimes> times_in_replay(const std::vector<DeviceTrace>& alone,
                                           const DeviceTrace& replay);

}  // namespace ridgeline::engine
