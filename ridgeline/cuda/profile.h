#pragma once

#include <memory>
#include <string>

#include "ridgeline/core/device_trace.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Through CUPTI, which is looked up at run time. Null when it is not there, does not fit this build
// or is in another tool's use; `why_not` says which.
std::unique_ptr<DeviceTracer> make_tracer(std::string& why_not);

// Returns the kernel with each of its steps in an NVTX range of the kernel's name, which Nsight
// shows. Ranges cost nothing when no tool listens.
Kernel with_range(Kernel kernel);

}  // namespace ridgeline::cuda
