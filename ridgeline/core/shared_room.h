#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace ridgeline {

// Memory of the ranks of one host that all of them see. A Communicator may be one; rows that share
// out work in pieces too small for messages look for it.
class SharedRoom {
 public:
  virtual ~SharedRoom() = default;

  // A room of each rank, in their order, aligned to 64 bytes, zero at first; none where ranks share
  // no memory. For rows while they run, one after the other, each of which finds what the last run
  // of any left there.
  virtual std::span<std::byte* const> rooms() const = 0;
  virtual size_t room_bytes() const = 0;
  // Takes the memory of this rank's own room, up to `bytes`, for good; false where there is none
  // any more. A room may be used as far as its rank has claimed it: beyond, who writes is killed
  // when the host's shared memory is full.
  virtual bool claim(size_t bytes) = 0;

  // Returns when done(), which is asked again and again, is true. For the thread that runs the
  // rows: its time is counted as waiting for others, and when one of them is lost the run ends
  // here.
  virtual void wait_until(const std::function<bool()>& done) = 0;
};

}  // namespace ridgeline
