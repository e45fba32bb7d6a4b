#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ridgeline/core/tensor.h"

namespace ridgeline {

// Runs of one GPU that go on side by side, each on a thread of its own: what they share, and the
// launches that they make together. A thread enters while its run is under way; every joint launch
// then waits until it launches too, or leaves.
class LaunchGroup {
 public:
  virtual ~LaunchGroup() = default;

  // The group that this thread has entered; null: none.
  static LaunchGroup* current();
  void enter();
  void leave() noexcept;

  // Memory of the device that holds these bytes of the host, copied once for all runs. The host's
  // must outlive the group.
  virtual void* resident(const void* host, size_t bytes) = 0;

  virtual size_t free_bytes() const = 0;  // that can still be allocated on the device

  // The name of the kernel whose launches are joint.
  virtual std::string kernel() const = 0;

 protected:
  virtual void entered() = 0;
  virtual void left() noexcept = 0;
};

// Null for the host, where there is nothing to launch together. In registry.cpp.
std::unique_ptr<LaunchGroup> make_launch_group(Device device);

}  // namespace ridgeline
