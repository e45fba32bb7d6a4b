#pragma once

#include <memory>
#include <string>

#include "ridgeline/core/device_trace.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// A tracer that uses CUPTI, which is looked up at run time. Null if CUPTI is missing, does not fit
// this build or is in use by another tool; `why_not` says which.
std::unique_ptr<DeviceTracer> make_tracer(std::string& why_not);

// Returns the kernel with each of its steps in an NVTX range with the kernel's name, which Nsight
// shows. Ranges cost nothing when no tool is attached.
Kernel with_range(Kernel kernel);

}  // namespace ridgeline::cuda
