#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridgeline/plan/backend.h"

// The one place that names the backends.
namespace ridgeline {

// The host's first.
const std::vector<const Backend*>& backends();

// What there is to say about GPUs, in a build without support for them too.
DeviceSupport gpu_support();

// What compiles generated kernels for GPUs, or why nothing does; "" in a build without GPU support.
std::string generator_support();

// The source of the one GPU kernel that is generated for a whole program, for reading. Throws
// Error(usage) where none is, with the reason.
std::string generated_source(const Program& program, const Runtime& runtime);

// The devices of this machine that this build can use; the CPU is always the first.
std::vector<Device> devices();
std::vector<Device> gpus();  // those of them that are not the host

// `threads` host threads for a CPU (0: resolve_threads decides). Throws Error(device) for a device
// that is not there or not built in.
std::unique_ptr<Runtime> make_runtime(Device device, int threads = 0);

// The order between the work of a runtime and streams of other programs in this process
// (Backend::wait_for_stream and the like).
void wait_for_stream(Runtime& runtime, void* stream);
void let_stream_wait(Runtime& runtime, void* stream);
void* stream_of(Runtime& runtime);
void wait_on_host(Device device, void* stream);

// Records what GPUs do from now on. Null when nothing can, with the reason in `why_not`.
std::unique_ptr<DeviceTracer> trace_gpus(std::string& why_not);

// The precisions in which a device computes something; every one if this build has no kernel for
// it.
Precisions precisions_of(Device device);

// The kernels of every backend, in the fixed order of preference within each.
KernelTable all_kernels();
// Those for inference alone (Backend::inference_kernels). They come before the others in the order
// of preference.
KernelTable inference_kernels();
// Those to measure beside them, which no plan takes (Backend::peer_kernels).
KernelTable peer_kernels();

}  // namespace ridgeline
