#include "ridgeline/core/reserve_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace ridgeline {

// A system call writes the zeros, so that a page that cannot be allocated is an error, not a
// signal.
bool reserve_memory(std::byte* begin, size_t bytes) {
  const int zeros = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  if (zeros < 0) return false;
  size_t done = 0;
  while (done < bytes) {
    const ssize_t part = ::read(zeros, begin + done, bytes - done);
    if (part > 0) done += size_t(part);
    if (part == 0 || (part < 0 && errno != EINTR)) break;
  }
  ::close(zeros);
  return done == bytes;
}

}  // namespace ridgeline
