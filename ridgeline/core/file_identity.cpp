#include "ridgeline/core/file_identity.h"

#include <sys/stat.h>

namespace ridgeline {

std::optional<FileIdentity> identify(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return FileIdentity{status.st_dev, status.st_ino, {}};
  // A dangling link is replaced itself when a file is written there.
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  if (::stat(folder.c_str(), &status) != 0) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino, path.filename().string()};
}

}  // namespace ridgeline
