#include "ridgeline/cuda/backend.h"

#include <algorithm>

#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/generate/kernels.h"
#include "ridgeline/cuda/info.h"
#include "ridgeline/cuda/kernels.h"
#include "ridgeline/cuda/one_sample/cluster_net.h"
#include "ridgeline/cuda/population/group.h"
#include "ridgeline/cuda/profile.h"
#include "ridgeline/cuda/runtime.h"
#include "ridgeline/cuda/stream_order.h"

namespace ridgeline::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }

  DeviceSupport support() const override {
    const GpuReport report = gpu_report();
    DeviceSupport support;
    support.architectures = built_architectures();
    support.refusal = report.refusal;
    support.expected = !report.driver.empty();
    bool usable = false;
    for (const GpuInfo& gpu : report.gpus) {
      support.devices.push_back(describe(gpu));
      usable |= gpu.refusal.empty();
      if (support.refusal.empty()) support.refusal = gpu.name + ": " + gpu.refusal;
    }
    if (usable) support.refusal.clear();
    return support;
  }

  std::vector<Device> devices() const override {
    std::vector<Device> all;
    for (const int index : usable_gpus()) all.push_back({DeviceKind::cuda, index});
    return all;
  }

  std::unique_ptr<Runtime> make_runtime(Device device, int) const override {
    return std::make_unique<CudaRuntime>(device.index);
  }
  std::unique_ptr<DeviceTracer> make_tracer(std::string& why_not) const override {
    return cuda::make_tracer(why_not);
  }
  void* stream_of(Runtime& runtime) const override { return cuda_runtime(runtime).stream(); }
  void wait_for_stream(Runtime& runtime, void* stream) const override {
    cuda::wait_for_stream(cuda_runtime(runtime), stream);
  }
  void let_stream_wait(Runtime& runtime, void* stream) const override {
    cuda::let_stream_wait(cuda_runtime(runtime), stream);
  }
  void wait_on_host(Device device, void* stream) const override {
    cuda::wait_on_host(device.index, stream);
  }
  std::unique_ptr<LaunchGroup> make_launch_group(Device device) const override {
    return std::make_unique<PopulationGroup>(device.index);
  }
  std::shared_ptr<std::byte> host_memory(size_t bytes) const override {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, std::max<size_t>(1, bytes)), "pinned host memory");
    return {static_cast<std::byte*>(memory), [](std::byte* each) { cudaFreeHost(each); }};
  }
  std::unique_ptr<OneSampleNet> make_one_sample_net(Runtime& runtime, const LayerChain& chain,
                                                    const OneSampleOptions& options,
                                                    std::string& why_not) const override {
    return make_cluster_net(cuda_runtime(runtime), chain, options, why_not);
  }
  KernelTable kernels() const override { return cuda::kernels(); }
  KernelTable peer_kernels() const override { return cuda::peer_kernels(); }
  KernelTable inference_kernels() const override { return generated_call_kernels(); }
  std::string generator() const override { return generator_support(); }
  std::string generated_source(const Program& program, const Runtime& runtime) const override {
    return readable_source(program, runtime);
  }
};

}  // namespace

const Backend& backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace ridgeline::cuda
