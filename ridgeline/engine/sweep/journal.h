#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "ridgeline/engine/sweep/sweep.h"

namespace ridgeline::engine {

// The results of a sweep as they come, a line of JSON each, so that a killed sweep loses none: the
// first line says which sweep it is. Held by one process at a time.
class SweepJournal {
 public:
  // `sweep` tells one sweep from another. Without `resume` it begins anew; throws usage when the
  // folder then holds a sweep that was not finished, unless `force`, and when the sweep to resume
  // is another one.
  SweepJournal(std::filesystem::path folder, std::string sweep, size_t combinations, bool resume,
               bool force);
  ~SweepJournal();
  SweepJournal(const SweepJournal&) = delete;
  SweepJournal& operator=(const SweepJournal&) = delete;

  // The points that this and earlier processes have made, by their combination.
  std::map<size_t, SweepPoint> points() const;
  void append(size_t combination, const SweepPoint& point);

  // Where the members of a sweep have their folders.
  static std::filesystem::path members(const std::filesystem::path& folder) {
    return folder / "members";
  }
  // Whether a file that begins so is a journal.
  static bool is_own(std::string_view head);

 private:
  void open();
  std::filesystem::path path() const { return folder_ / "sweep.jsonl"; }
  std::string first_line() const;

  std::filesystem::path folder_;
  std::string sweep_;
  size_t combinations_;
  int file_ = -1;
};

}  // namespace ridgeline::engine
