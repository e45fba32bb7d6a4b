#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridgeline/plan/backend.h"

// The one place that names the backends.
namespace ridgeline {

// All backends, the host's first.
const std::vector<const Backend*>& backends();

// Describes the support of GPUs, also in a build without it.
DeviceSupport gpu_support();

// The compiler of generated kernels for GPUs, or why there is none; "" in a build without GPU
// support.
std::string generator_support();

// Returns the source of the GPU kernel that is generated for a whole program, for reading. Throws
// Error(usage) with the reason if there is none.
std::string generated_source(const Program& program, const Runtime& runtime);

// The devices of this machine that this build can use; the CPU is always the first.
std::vector<Device> devices();
std::vector<Device> gpus();  // those of them that are not the host

// `threads` is the number of host threads for a CPU (0: resolve_threads decides). Throws
// Error(device) for a device that does not exist or is not built in.
std::unique_ptr<Runtime> make_runtime(Device device, int threads = 0);

// Orders the work of a runtime with streams of other libraries in this process
// (Backend::wait_for_stream and the like).
void wait_for_stream(Runtime& runtime, void* stream);
void let_stream_wait(Runtime& runtime, void* stream);
void* stream_of(Runtime& runtime);
void wait_on_host(Device device, void* stream);

// Records GPU activity from now on. Returns null, with the reason in `why_not`, if nothing can.
std::unique_ptr<DeviceTracer> trace_gpus(std::string& why_not);

// The precisions that a device supports; every one if this build has no kernel for
// it.
Precisions precisions_of(Device device);

// The kernels of every backend, in the fixed order of preference within each.
KernelTable all_kernels();
// Kernels for inference only (Backend::inference_kernels). They precede the others in the order of
// preference.
KernelTable inference_kernels();
// Kernels to measure beside them, which no plan takes (Backend::peer_kernels).
KernelTable peer_kernels();

}  // namespace ridgeline
