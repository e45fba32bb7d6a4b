#include "ridgeline/registry.h"

#include "ridgeline/cpu/backend.h"
#include "ridgeline/cuda/backend.h"
#include "ridgeline/one_sample.h"

namespace ridgeline {
namespace {

KernelTable of_all_backends(KernelTable (Backend::*kernels)() const) {
  KernelTable table;
  for (const Backend* backend : backends()) {
    for (Kernel& kernel : (backend->*kernels)()) table.push_back(std::move(kernel));
  }
  return table;
}

const Backend& backend_of(Device device) {
  for (const Backend* backend : backends()) {
    if (backend->kind() == device.kind) return *backend;
  }
  throw_error(ErrorKind::device, "{}: no such device", to_string(device));
}

}  // namespace

const std::vector<const Backend*>& backends() {
  static const std::vector<const Backend*> all{&cpu::backend(), &cuda::backend()};
  return all;
}

DeviceSupport gpu_support() { return cuda::backend().support(); }

std::string generator_support() { return cuda::backend().generator(); }

std::string generated_source(const Program& program, const Runtime& runtime) {
  return cuda::backend().generated_source(program, runtime);
}

std::vector<Device> devices() {
  std::vector<Device> all;
  for (const Backend* backend : backends()) {
    for (const Device& device : backend->devices()) all.push_back(device);
  }
  return all;
}

std::vector<Device> gpus() {
  std::vector<Device> all = devices();
  std::erase_if(all, [](const Device& device) { return device.is_host(); });
  return all;
}

std::unique_ptr<Runtime> make_runtime(Device device, int threads) {
  return backend_of(device).make_runtime(device, threads);
}

void wait_for_stream(Runtime& runtime, void* stream) {
  backend_of(runtime.device()).wait_for_stream(runtime, stream);
}
void let_stream_wait(Runtime& runtime, void* stream) {
  backend_of(runtime.device()).let_stream_wait(runtime, stream);
}
void* stream_of(Runtime& runtime) { return backend_of(runtime.device()).stream_of(runtime); }
void wait_on_host(Device device, void* stream) { backend_of(device).wait_on_host(device, stream); }

std::unique_ptr<LaunchGroup> make_launch_group(Device device) {
  return backend_of(device).make_launch_group(device);
}

std::shared_ptr<std::byte> host_memory(Runtime& runtime, size_t bytes) {
  return backend_of(runtime.device()).host_memory(bytes);
}

std::unique_ptr<OneSampleNet> make_one_sample_net(Runtime& runtime, const LayerChain& chain,
                                                  const OneSampleOptions& options,
                                                  std::string& why_not) {
  return backend_of(runtime.device()).make_one_sample_net(runtime, chain, options, why_not);
}

std::unique_ptr<DeviceTracer> trace_gpus(std::string& why_not) {
  return cuda::backend().make_tracer(why_not);
}

Precisions precisions_of(Device device) {
  Precisions all{};
  const KernelTable kernels = backend_of(device).kernels();
  for (const Kernel& kernel : kernels) all = all | kernel.traits.precisions;
  return kernels.empty() ? kEveryPrecision : all;
}

KernelTable all_kernels() { return of_all_backends(&Backend::kernels); }
KernelTable inference_kernels() { return of_all_backends(&Backend::inference_kernels); }
KernelTable peer_kernels() { return of_all_backends(&Backend::peer_kernels); }

}  // namespace ridgeline
