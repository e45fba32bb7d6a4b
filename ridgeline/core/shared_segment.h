#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace ridgeline {

// Memory that all ranks of one host see. A Communicator may implement it; kernels that divide their
// work into tasks too small for messages ask for it.
class SharedSegment {
 public:
  virtual ~SharedSegment() = default;

  // One segment per rank, in the order of the ranks, aligned to 64 bytes and zero at first; empty
  // if the ranks share no memory. Kernels use the segments while they run, one kernel after the
  // other, and each finds what the previous run of any kernel left there.
  virtual std::span<std::byte* const> segments() const = 0;
  virtual size_t segment_bytes() const = 0;
  // Allocates the first `bytes` of this rank's own segment for good; returns false if the host has
  // no memory left for it. A segment may be used as far as its rank has reserved it: a write beyond
  // that kills the process when the host's shared memory is full.
  virtual bool reserve(size_t bytes) = 0;

  // Polls done() and returns when it is true. Called by the thread that runs the kernels: the time
  // counts as waiting for other ranks, and if one of them is lost the run ends here.
  virtual void wait_until(const std::function<bool()>& done) = 0;
};

}  // namespace ridgeline
