#pragma once

#include <memory>
#include <vector>

#include "ridgeline/core/device_trace.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/core/uploader.h"
#include "ridgeline/plan/kernel.h"

// The one place that names the backends.
namespace ridgeline {

// What there is to say about GPUs, in a build without support for them too.
struct GpuSupport {
  std::vector<std::string> gpus;  // a line for each GPU of the machine, usable or not
  std::string architectures;      // what the kernels were built for; "" in a build without any
  std::string refusal;            // why no GPU can be used; "" when one can
  // A build for GPUs on a machine with an NVIDIA driver: who gets the CPU instead wants to know.
  bool expected = false;
};
GpuSupport gpu_support();

// The devices of this machine that this build can use; the CPU is always the first.
std::vector<Device> devices();

// `threads` host threads for a CPU (0: resolve_threads decides). Throws Error(device) for a device
// that is not there or not built in.
std::unique_ptr<Runtime> make_runtime(Device device, int threads = 0);

// The threads that the kernels of a CPU share; null for another device.
ThreadPool* pool_of(Runtime& runtime);

// Bytes that can still be allocated on the runtime's device.
size_t free_memory(const Runtime& runtime);

// Blocks of `bytes` for the runtime's device.
std::unique_ptr<Uploader> make_uploader(Runtime& runtime, size_t bytes);

// to[0..bytes) = from[0..bytes) in the memory of the runtime's GPU, in order with its other work.
void copy_on_gpu(Runtime& runtime, void* to, const void* from, size_t bytes);

// Bytes a second that one large copy reaches between the host's pinned memory and the GPU.
double pinned_copy_rate(Runtime& runtime, bool to_gpu);

// After set_ranks(), on all ranks: what a device needs to talk to the other ranks' devices.
void connect_ranks(Runtime& runtime);

// Seconds of each of `count` calls, call(0) first, made back to back in one pass. What was asked of
// a GPU before goes on meanwhile: the calls line up behind it, so that the gaps between launches do
// not count.
std::vector<double> time_each(Runtime& runtime, size_t count,
                              const std::function<void(size_t)>& call);

// Records what GPUs do from now on. Null when nothing can, with the reason in `why_not`.
std::unique_ptr<DeviceTracer> trace_gpus(std::string& why_not);

// The kernels of every backend, in the fixed order of preference within each.
KernelTable all_kernels();
// Kernels for inference alone: they read the weights when they are prepared, so that these must be
// in place by then and stay as they are. They come before the others in the order of preference.
KernelTable inference_kernels();
// Kernels to measure beside them, which no plan takes: the vendors' that round where ours do not.
KernelTable peer_kernels();

}  // namespace ridgeline
