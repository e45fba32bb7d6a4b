#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace ridgeline {

// Memory that all ranks of one host can access. A Communicator may implement it; kernels whose
// tasks are too small for messages use it.
class SharedSegment {
 public:
  virtual ~SharedSegment() = default;

  // One segment per rank, in rank order, aligned to 64 bytes and initially zero; empty if the ranks
  // share no memory. Kernels use the segments one after the other while they run, and each finds
  // the contents that the previous run of any kernel left.
  virtual std::span<std::byte* const> segments() const = 0;
  virtual size_t segment_bytes() const = 0;
  // Permanently allocates the first `bytes` of this rank's own segment; returns false if the host
  // has no memory left for it. Only the reserved part of a segment may be used: a write beyond it
  // kills the process when the host's shared memory is full.
  virtual bool reserve(size_t bytes) = 0;

  // Polls done() until it is true. Called by the thread that runs the kernels: the time counts as
  // waiting for other ranks, and the run ends here if one of them is lost.
  virtual void wait_until(const std::function<bool()>& done) = 0;
};

}  // namespace ridgeline
