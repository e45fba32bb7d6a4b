#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <string>

namespace ridgeline {

// What operator new of the command-line tool throws: a lack of memory that knows how much was
// wanted.
struct OutOfMemory : std::bad_alloc {
  explicit OutOfMemory(size_t wanted) : bytes(wanted) {}
  size_t bytes;
};

// How a program ends that an exception has ended.
struct Failure {
  int exit_code;
  std::string message;
};

// An Error says it itself; a lack of memory or threads says what would help; the rest is a bug.
Failure failure_of(const std::exception& error);

}  // namespace ridgeline
