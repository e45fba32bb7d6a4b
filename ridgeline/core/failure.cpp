#include "ridgeline/core/failure.h"

#include <system_error>

#include "ridgeline/core/error.h"

namespace ridgeline {

Failure failure_of(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    return {exit_code(known->kind()), known->what()};
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    const auto* sized = dynamic_cast<const OutOfMemory*>(&error);
    return {exit_code(ErrorKind::device),
            fmt::format("out of host memory{}: use a smaller data set, batch or model, raise "
                        "ulimit -v, or end other programs",
                        sized != nullptr ? fmt::format(", wanted {} bytes", sized->bytes) : "")};
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error);
      system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return {
        exit_code(ErrorKind::device),
        "the system gives no more threads: raise ulimit -u or ulimit -v, or end other programs"};
  }
  return {1, fmt::format("unexpected: {}", error.what())};
}

}  // namespace ridgeline
