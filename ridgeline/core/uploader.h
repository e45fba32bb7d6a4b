#pragma once

#include <cstddef>
#include <span>

namespace ridgeline {

// Copies blocks of one size from the host to a device while the device computes: fill block(),
// send() it, and place() it when the device's next work needs it.
class Uploader {
 public:
  virtual ~Uploader() = default;
  virtual std::span<std::byte> block() = 0;  // host memory to fill; waits until it is free
  virtual void send() = 0;                   // begins to copy the block that block() returned last
  // Makes the block that was sent last available at `device` for all work requested from now on.
  virtual void place(void* device) = 0;
};

}  // namespace ridgeline
