#pragma once

#include <sys/types.h>

#include <filesystem>
#include <utility>

#include "ridgeline/core/error.h"

namespace ridgeline {

// An open file descriptor, closed by the destructor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

  // Returns false if closing fails: network file systems report a failed write only then.
  bool close();

 private:
  int fd_ = -1;
};

// Opens a regular file for reading. Anything else throws an Error of `kind` that says what it is: a
// folder, pipe, device or socket is never opened, because opening it could block or have effects.
Descriptor open_regular(const std::filesystem::path& path, ErrorKind kind);

// "a folder", "a pipe", ... for st_mode; "a file" for a regular one.
const char* kind_of_file(mode_t mode);

// Throws an Error of `kind` about the last system call that failed: "PATH: cannot DOING: WHY".
[[noreturn]] void throw_errno(ErrorKind kind, const std::filesystem::path& path, const char* doing);

}  // namespace ridgeline
