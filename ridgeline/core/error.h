#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "ridgeline/error.h"

namespace ridgeline {

// throw_error(ErrorKind::data, "{}: bad magic {:#x}", path, magic)
template <typename... Args>
[[noreturn]] void throw_error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ridgeline
