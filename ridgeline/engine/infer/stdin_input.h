#pragma once

#include <filesystem>
#include <optional>

#include "ridgeline/core/temporary.h"

namespace ridgeline::engine {

// Provides stdin as a file, because readers look at the beginning of their input more than once. A
// file that stdin is redirected from is read in place; a pipe is copied to a temporary file until
// its end. Throws Error(io) if there is no space for the copy, and Error(usage) if stdin is a
// terminal.
class StdinInput {
 public:
  StdinInput();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::optional<ScratchFolder> scratch_;
  std::filesystem::path path_;
};

}  // namespace ridgeline::engine
