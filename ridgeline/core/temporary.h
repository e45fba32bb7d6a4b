#pragma once

#include <filesystem>
#include <string_view>

#include "ridgeline/core/descriptor.h"

namespace ridgeline {

// A new file beside `target` with an unused name, "NAME.<16 hexadecimal digits>.tmp". It is locked
// while this object lives, and removed with it unless it was moved into place.
class TemporaryFile {
 public:
  // `mode` is subject to the umask. Throws Error(io).
  explicit TemporaryFile(const std::filesystem::path& target, mode_t mode = 0666);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const { return file_.get(); }
  const std::filesystem::path& path() const { return path_; }
  // Renames it to the target, which is replaced. If `lasting`, it syncs before and after the
  // rename. Throws io.
  void publish(bool lasting = true);

 private:
  std::filesystem::path target_, path_;
  Descriptor file_;
};

// Returns an unused name for a file beside `target`, in the form of TemporaryFile.
std::filesystem::path temporary_name(const std::filesystem::path& target);

// Removes the temporary files of `target` that killed processes have left: those with a name of
// that form that this user owns and that no living process has locked.
void remove_leftovers(const std::filesystem::path& target) noexcept;

// Syncs the folder of `path`, so that a rename in it is durable. Throws Error(io).
void sync_folder_of(const std::filesystem::path& path);

// A new folder under $TMPDIR or /tmp that only this user can enter. The destructor removes it and
// everything in it. Throws Error(io).
class ScratchFolder {
 public:
  explicit ScratchFolder(std::string_view name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ridgeline
