#pragma once

#include <optional>
#include <vector>

#include "ridgeline/core/device_trace.h"

namespace ridgeline::engine {

// The times of kernels inside whole steps of a plan, where they follow each other as in a run.
struct ReplayTimes {
  std::vector<std::vector<double>> kernels;  // [kernel][step], seconds
};

// `alone` has the launches of one pass over each kernel, `replay` a recording of several whole
// steps. A launch of the replay belongs to the kernel with a matching launch: the k-th of that name
// and size in a step belongs to the k-th kernel that has one. Overlapping launches share the time
// equally, so the kernels' times add up to the time in which any of their launches ran. Returns
// nothing if the replay does not consist of such steps.
std::optional<ReplayTimes> times_in_replay(const std::vector<DeviceTrace>& alone,
                                           const DeviceTrace& replay);

}  // namespace ridgeline::engine
