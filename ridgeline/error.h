#pragma once

#include <stdexcept>
#include <string>

namespace ridgeline {

// The kind of an error, by what the user can do about it. Each kind has its exit code.
enum class ErrorKind { usage, data, model, numeric, io, device, comm };

int exit_code(ErrorKind kind);
const char* name(ErrorKind kind);

// The only exception of this library. The message is one line that names the object, the place in
// it, what is wrong and what would help.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace ridgeline
