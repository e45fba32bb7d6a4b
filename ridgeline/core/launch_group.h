#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ridgeline/core/tensor.h"

namespace ridgeline {

// Runs on one GPU that execute side by side, each on its own thread: the memory that they share,
// and the launches that they make together. A thread enters while its run is under way; every joint
// launch then waits until that thread launches too, or leaves.
class LaunchGroup {
 public:
  virtual ~LaunchGroup() = default;

  // The group that this thread has entered, or null.
  static LaunchGroup* current();
  void enter();
  void leave() noexcept;

  // Returns device memory that holds these host bytes, copied once for all runs. The host memory
  // must outlive the group.
  virtual void* resident(const void* host, size_t bytes) = 0;

  virtual size_t free_bytes() const = 0;  // bytes that can still be allocated on the device

  // The name of the kernel whose launches are joint.
  virtual std::string kernel() const = 0;

 protected:
  virtual void entered() = 0;
  virtual void left() noexcept = 0;
};

// Returns null for the host, which has no joint launches. Defined in registry.cpp.
std::unique_ptr<LaunchGroup> make_launch_group(Device device);

}  // namespace ridgeline
