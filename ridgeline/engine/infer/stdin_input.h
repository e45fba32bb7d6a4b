#pragma once

#include <filesystem>
#include <optional>

#include "ridgeline/core/temporary.h"

namespace ridgeline::engine {

// Makes a file of what stdin gives: readers look at the beginning of their input more than once. A
// file that stdin is redirected from is read where it is; a pipe is copied to a temporary file to
// its end. Throws io when there is no room for the copy, and usage when stdin is a terminal.
class StdinInput {
 public:
  StdinInput();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::optional<ScratchFolder> scratch_;
  std::filesystem::path path_;
};

}  // namespace ridgeline::engine
