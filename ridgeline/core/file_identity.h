#pragma once

#include <sys/types.h>

#include <compare>
#include <filesystem>
#include <optional>
#include <string>

namespace ridgeline {

// The file that a path leads to, through links of either kind: two paths with equal identities are
// one file. A file that does not exist yet is identified by its folder and its name in it.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;  // empty for a file that exists

  auto operator<=>(const FileIdentity&) const = default;
};

// Returns nothing if the path has neither a file nor a folder that could hold one.
std::optional<FileIdentity> identify(const std::filesystem::path& path);

}  // namespace ridgeline
