#pragma once

#include <cstddef>
#include <string>

#include "ridgeline/core/error.h"

namespace ridgeline {

// A plan's memory does not fit on the device. `op` is the op at which most memory is in use, so
// that a caller who knows the layers can name one.
class OutOfArena : public Error {
 public:
  OutOfArena(const std::string& message, size_t at) : Error(ErrorKind::device, message), op(at) {}
  const size_t op;
};

}  // namespace ridgeline
