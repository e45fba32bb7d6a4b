// Stands in for the CUDA backend in a build without it.
#include "ridgeline/core/error.h"
#include "ridgeline/cuda/backend.h"

namespace ridgeline::cuda {
namespace {

constexpr const char* kNotBuilt =
    "this build has no GPU support; configure with -D RIDGELINE_CUDA=ON or use --device cpu";

class UnavailableBackend final : public Backend {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }
  DeviceSupport support() const override {
    DeviceSupport support;
    support.refusal = kNotBuilt;
    return support;
  }
  std::vector<Device> devices() const override { return {}; }
  std::unique_ptr<Runtime> make_runtime(Device device, int) const override {
    throw_error(ErrorKind::device, "{}: {}", to_string(device), kNotBuilt);
  }
  std::unique_ptr<DeviceTracer> make_tracer(std::string& why_not) const override {
    why_not = kNotBuilt;
    return nullptr;
  }
  KernelTable kernels() const override { return {}; }
};

}  // namespace

const Backend& backend() {
  static const UnavailableBackend backend;
  return backend;
}

}  // namespace ridgeline::cuda
