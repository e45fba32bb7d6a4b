#pragma once

#include <exception>
#include <string>

namespace ridgeline {

// How a program ends that an exception has ended.
struct Failure {
  int exit_code;
  std::string message;
};

// Of an Error what it says; of a lack of memory what would help; anything else is a bug.
Failure failure_of(const std::exception& error);

}  // namespace ridgeline
