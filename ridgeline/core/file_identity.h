#pragma once

#include <sys/types.h>

#include <compare>
#include <filesystem>
#include <optional>
#include <string>

namespace ridgeline {

// Which file a path leads to, through links of either kind: two paths with equal identities are
// one file. A file that is not there yet has the identity of its folder and its name in it.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;  // empty for a file that is there

  auto operator<=>(const FileIdentity&) const = default;
};

// None when the path has neither a file nor a folder for one.
std::optional<FileIdentity> identify(const std::filesystem::path& path);

}  // namespace ridgeline
