#pragma once

#include <cstddef>
#include <span>

namespace ridgeline {

// Brings blocks of one size from the host to a device while that computes: fill block(), send() it,
// and place() it when the device's next work wants it.
class Uploader {
 public:
  virtual ~Uploader() = default;
  virtual std::span<std::byte> block() = 0;  // of the host, to fill; waits until it may be
  virtual void send() = 0;                   // begins to copy what block() gave last
  // What was sent last is at `device` for all work asked for from now on.
  virtual void place(void* device) = 0;
};

}  // namespace ridgeline
