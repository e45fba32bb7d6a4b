#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <string>

namespace ridgeline {

// Thrown by operator new of the command-line tool. It records how many bytes were
// wanted.
struct OutOfMemory : std::bad_alloc {
  explicit OutOfMemory(size_t wanted) : bytes(wanted) {}
  size_t bytes;
};

// The exit code and the message of a program that an exception has ended.
struct Failure {
  int exit_code;
  std::string message;
};

// An Error has its own message; a lack of memory or threads says what would help; the rest are
// bugs.
Failure failure_of(const std::exception& error);

}  // namespace ridgeline
