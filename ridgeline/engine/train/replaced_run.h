#pragma once

#include <filesystem>
#include <functional>
#include <vector>

namespace ridgeline::engine {

// The files of an old run while a new one takes its place. They are moved into a folder of their
// own inside the run's folder and come back unless the new run gets as far as remove(). The name
// of that folder says how far a process that was killed had come, and recover() acts on it. Whoever
// uses this holds the lock of the run's folder.
class ReplacedRun {
 public:
  // Paths relative to the run's folder, of all files there that a run of ours wrote.
  using OwnFiles = std::function<std::vector<std::filesystem::path>()>;

  // Moves all own files aside. Throws io; then they are back.
  ReplacedRun(std::filesystem::path folder, OwnFiles own_files);
  // Puts them back in place of what the new run has written, unless they are removed.
  ~ReplacedRun();
  ReplacedRun(const ReplacedRun&) = delete;
  ReplacedRun& operator=(const ReplacedRun&) = delete;

  // The new run stands: the old files go for good.
  void remove() noexcept;

  // Whether a killed process left something to recover in the folder.
  static bool is_left_in(const std::filesystem::path& folder);
  // Finishes what a killed process left: puts an old run back whose successor had not begun, and
  // removes the rest of one whose successor had. Throws io when a file that is not ours is in the
  // way.
  static void recover(const std::filesystem::path& folder, const OwnFiles& own_files);

 private:
  void rename_to(const char* prefix);

  std::filesystem::path folder_;
  OwnFiles own_files_;
  std::filesystem::path aside_;  // empty: there was nothing to move, or it is removed
};

}  // namespace ridgeline::engine
