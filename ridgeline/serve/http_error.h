#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ridgeline::serve {

// An error response to a request: its status, and one sentence that names the field.
struct HttpError : std::runtime_error {
  HttpError(int code, const std::string& message, std::string lines = "")
      : std::runtime_error(message), status(code), headers(std::move(lines)) {}
  int status;
  std::string headers;  // complete lines, besides the usual ones
};

// refuse(400, "inputs[{}].shape: {} is no shape", i, text)
template <typename... Args>
[[noreturn]] void refuse(int status, fmt::format_string<Args...> format, Args&&... args) {
  throw HttpError(status, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ridgeline::serve
