#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridgeline/core/device_trace.h"
#include "ridgeline/core/launch_group.h"
#include "ridgeline/plan/kernel.h"
#include "ridgeline/plan/layer_chain.h"

namespace ridgeline {

// What there is to say about a backend's devices on this machine, usable or not.
struct DeviceSupport {
  std::vector<std::string> devices;  // a line for each
  std::string architectures;  // what its kernels were built for; "" in a build without the backend
  std::string refusal;        // why none of them can be used; "" when one can
  // The machine has what the backend is for: whoever gets another device wants to know why.
  bool expected = false;
};

// A kind of device: how to find such devices, a runtime for each, and the kernels for them. Each
// backend has one object of this type, and registry.cpp names them all. Code above the registry
// asks it, or a Runtime, and does not compare kinds.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual DeviceKind kind() const = 0;
  virtual DeviceSupport support() const = 0;
  virtual std::vector<Device> devices() const = 0;  // that this build can use on this machine
  // `threads` host threads for a device that is the host. Throws Error(device) if the device is not
  // there or not built in.
  virtual std::unique_ptr<Runtime> make_runtime(Device device, int threads) const = 0;
  // Records what the devices do from now on. Null when nothing can, with the reason in `why_not`.
  virtual std::unique_ptr<DeviceTracer> make_tracer(std::string& why_not) const {
    why_not = "no tracer for these devices";
    return nullptr;
  }

  // The order between the work of a runtime of this backend and streams of other programs in this
  // process, by the device's own handles (CUDA's 1 and 2 name its default streams): ours waits for
  // theirs so far, theirs for ours so far. A device without streams is always in order.
  virtual void* stream_of(Runtime&) const { return nullptr; }
  virtual void wait_for_stream(Runtime&, void*) const {}
  virtual void let_stream_wait(Runtime&, void*) const {}
  virtual void wait_on_host(Device, void*) const {}  // returns when a stream is done

  // What runs that go on side by side on a device share; null where there is nothing to share.
  virtual std::unique_ptr<LaunchGroup> make_launch_group(Device) const { return nullptr; }

  // Host memory that the devices copy from and to without a detour: pinned for GPUs.
  virtual std::shared_ptr<std::byte> host_memory(size_t bytes) const;
  // A net that answers for one sample at a time, where the devices have a kernel for that and the
  // chain fits it; else null, with the reason in `why_not`.
  virtual std::unique_ptr<OneSampleNet> make_one_sample_net(Runtime& runtime,
                                                            const LayerChain& chain,
                                                            const OneSampleOptions& options,
                                                            std::string& why_not) const;

  // In the fixed order of preference.
  virtual KernelTable kernels() const = 0;
  // Kernels for inference alone: they read the weights when they are prepared, so that these must
  // be in place by then and stay as they are.
  virtual KernelTable inference_kernels() const { return {}; }
  // Kernels to measure beside ours, which no plan takes: the vendors' that round where ours do not.
  virtual KernelTable peer_kernels() const { return {}; }

  // What compiles the kernels that are generated for a program, or why nothing does and what is
  // lost; "" if no kernel is generated.
  virtual std::string generator() const { return {}; }
  // The source of the kernel that is generated for the whole program, for reading. Throws
  // Error(usage) with the reason where none is.
  virtual std::string generated_source(const Program&, const Runtime&) const {
    throw_error(ErrorKind::usage, "no kernel is generated: this build has no GPU support");
  }
};

}  // namespace ridgeline
