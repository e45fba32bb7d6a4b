#pragma once

#include <memory>
#include <vector>

#include "ridgeline/plan/impl.h"

// The one place that names the backends.
namespace ridgeline {

// The devices of this machine that this build can use; the CPU is always the first.
std::vector<Device> devices();

// `threads` host threads for a CPU (0: resolve_threads decides). Throws Error(device) for a device
// that is not there or not built in.
std::unique_ptr<Runtime> make_runtime(Device device, int threads = 0);

// The rows of every backend, in the fixed order of preference within each.
Table all_rows();

}  // namespace ridgeline
