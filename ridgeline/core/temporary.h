#pragma once

#include <filesystem>
#include <string_view>

#include "ridgeline/core/descriptor.h"

namespace ridgeline {

// A new file beside `target`, under a name that nothing had: "NAME.<16 hexadecimal digits>.tmp".
// It is locked while this lives, and removed with it unless it was moved into place.
class TemporaryFile {
 public:
  // `mode` is what the umask may take from. Throws io.
  explicit TemporaryFile(const std::filesystem::path& target, mode_t mode = 0666);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const { return file_.get(); }
  const std::filesystem::path& path() const { return path_; }
  // Gives it the name of the target, which is replaced; on disk before and after if it is to last.
  // Throws io.
  void publish(bool lasting = true);

 private:
  std::filesystem::path target_, path_;
  Descriptor file_;
};

// A name for a file beside `target` that nothing had a moment ago, in the form of TemporaryFile.
std::filesystem::path temporary_name(const std::filesystem::path& target);

// Removes the temporary files of `target` that a killed process has left: those with a name of
// that form which are files of this user and which no living process has locked.
void remove_leftovers(const std::filesystem::path& target) noexcept;

// Writes what the folder of `path` lists to disk, so that a rename in it lasts. Throws io.
void sync_folder_of(const std::filesystem::path& path);

// A new folder that only this user can enter, under $TMPDIR or /tmp; removed with all that is in
// it when this goes. Throws io.
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
