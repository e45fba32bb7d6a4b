#pragma once

#include <filesystem>
#include <functional>
#include <vector>

namespace ridgeline::engine {

// The files of an old run while a new one replaces it. They are moved into a folder inside the
// run's folder and restored unless the new run reaches remove(). The name of that folder records
// how far a killed process had got, and recover() acts on it. The caller holds the lock of the
// run's folder.
class ReplacedRun {
 public:
  // Returns the paths, relative to the run's folder, of all files there that a run of ours wrote.
  using ListFiles = std::function<std::vector<std::filesystem::path>()>;

  // Moves all own files aside. Throws Error(io) after restoring them.
  ReplacedRun(std::filesystem::path folder, ListFiles list_files);
  // Restores them in place of the new run's files, unless they were removed.
  ~ReplacedRun();
  ReplacedRun(const ReplacedRun&) = delete;
  ReplacedRun& operator=(const ReplacedRun&) = delete;

  // The new run has succeeded: deletes the old files.
  void remove() noexcept;

  // Returns whether a killed process left something to recover in the folder.
  static bool is_left_in(const std::filesystem::path& folder);
  // Completes the work of a killed process: restores an old run whose successor had not begun, and
  // removes the rest of one whose successor had. Throws Error(io) if a file that is not ours is in
  // the way.
  static void recover(const std::filesystem::path& folder, const ListFiles& list_files);

 private:
  void rename_to(const char* prefix);

  std::filesystem::path folder_;
  ListFiles list_files_;
  std::filesystem::path aside_;  // empty: there was nothing to move, or it is removed
};

}  // namespace ridgeline::engine
