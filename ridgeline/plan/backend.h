#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridgeline/core/device_trace.h"
#include "ridgeline/core/launch_group.h"
#include "ridgeline/plan/kernel.h"
#include "ridgeline/plan/layer_chain.h"

namespace ridgeline {

// Describes a backend's devices on this machine, usable or not.
struct DeviceSupport {
  std::vector<std::string> devices;  // one line per device
  std::string architectures;  // that its kernels were built for; "" in a build without the backend
  std::string refusal;        // why no device can be used; "" if one can
  // The machine has such a device, so a user who gets another one should learn why.
  bool expected = false;
};

// A kind of device: how to find such devices, a runtime for each, and the kernels for them. Each
// backend has one object of this type, and registry.cpp names them all. Code above the registry
// uses this interface or a Runtime, and does not compare device kinds.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual DeviceKind kind() const = 0;
  virtual DeviceSupport support() const = 0;
  virtual std::vector<Device> devices() const = 0;  // that this build can use on this machine
  // `threads` is the number of host threads if the device is the host. Throws Error(device) if the
  // device does not exist or is not built in.
  virtual std::unique_ptr<Runtime> make_runtime(Device device, int threads) const = 0;
  // Records device activity from now on. Returns null, with the reason in `why_not`, if nothing
  // can.
  virtual std::unique_ptr<DeviceTracer> make_tracer(std::string& why_not) const {
    why_not = "no tracer for these devices";
    return nullptr;
  }

  // Orders the work of a runtime of this backend with streams of other libraries in this process,
  // given as the device's own handles (CUDA's 1 and 2 are its default streams): ours waits for the
  // work in theirs so far, or theirs for ours. A device without streams is always in order.
  virtual void* stream_of(Runtime&) const { return nullptr; }
  virtual void wait_for_stream(Runtime&, void*) const {}
  virtual void let_stream_wait(Runtime&, void*) const {}
  virtual void wait_on_host(Device, void*) const {}  // returns when the stream is done

  // Returns the group of runs side by side on a device; null if they have nothing to share.
  virtual std::unique_ptr<LaunchGroup> make_launch_group(Device) const { return nullptr; }

  // Host memory that the devices copy from and to directly: pinned for GPUs.
  virtual std::shared_ptr<std::byte> host_memory(size_t bytes) const;
  // Returns a net that answers for one sample at a time, if the devices have a kernel for that and
  // the chain fits it; else null, with the reason in `why_not`.
  virtual std::unique_ptr<OneSampleNet> make_one_sample_net(Runtime& runtime,
                                                            const LayerChain& chain,
                                                            const OneSampleOptions& options,
                                                            std::string& why_not) const;

  // Kernels in the fixed order of preference.
  virtual KernelTable kernels() const = 0;
  // Kernels for inference only: they read the weights when they are prepared, so these must be in
  // place by then and must not change.
  virtual KernelTable inference_kernels() const { return {}; }
  // Kernels to measure beside ours, which no plan takes: vendor kernels that round where ours do
  // not.
  virtual KernelTable peer_kernels() const { return {}; }

  // The compiler of kernels that are generated for a program, or why there is none and what is
  // lost; "" if no kernel is generated.
  virtual std::string generator() const { return {}; }
  // Returns the source of the kernel that is generated for the whole program, for reading. Throws
  // Error(usage) with the reason if there is none.
  virtual std::string generated_source(const Program&, const Runtime&) const {
    throw_error(ErrorKind::usage, "no kernel is generated: this build has no GPU support");
  }
};

}  // namespace ridgeline
