#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/core/device_trace.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Seconds of each of `count` calls in one pass, by events between them. Nothing is waited for
// before the last: the calls line up behind what the GPU was asked to do before.
std::vector<double> time_each(Runtime& runtime, size_t count,
                              const std::function<void(size_t)>& call);

// Through CUPTI, which is looked up at run time. Null when it is not there, does not fit this build
// or is in another tool's use; `why_not` says which.
std::unique_ptr<DeviceTracer> make_tracer(std::string& why_not);

// Returns the kernel with each of its steps in an NVTX range of the kernel's name, which Nsight
// shows. Ranges cost nothing when no tool listens.
Kernel with_range(Kernel kernel);

}  // namespace ridgeline::cuda
