#include "ridgeline/core/failure.h"

#include <new>

#include "ridgeline/core/error.h"

namespace ridgeline {

Failure failure_of(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    return {exit_code(known->kind()), known->what()};
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return {exit_code(ErrorKind::device),
            "out of host memory: use a smaller data set, batch or model, or end other programs"};
  }
  return {1, fmt::format("unexpected: {}", error.what())};
}

}  // namespace ridgeline
