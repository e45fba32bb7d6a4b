#include "ridgeline/cpu/backend.h"

#include "ridgeline/cpu/kernels.h"
#include "ridgeline/cpu/runtime.h"

namespace ridgeline::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  DeviceSupport support() const override { return {}; }
  std::vector<Device> devices() const override { return {Device{}}; }
  std::unique_ptr<Runtime> make_runtime(Device, int threads) const override {
    return std::make_unique<CpuRuntime>(resolve_threads(threads));
  }
  KernelTable kernels() const override { return cpu::kernels(); }
  KernelTable inference_kernels() const override { return cpu::inference_kernels(); }
};

}  // namespace

const Backend& backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace ridgeline::cpu
