#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "ridgeline/engine/sweep/sweep.h"

namespace ridgeline::engine {

// The results of a sweep, one line of JSON each, written as they arrive, so that a killed sweep
// loses none. The first line identifies the sweep. Held by one process at a time.
class SweepJournal {
 public:
  // `sweep` identifies the sweep. Without `resume` it begins anew; throws Error(usage) if the
  // folder holds an unfinished sweep, unless `force`, and if the sweep to resume is another
  // one.
  SweepJournal(std::filesystem::path folder, std::string sweep, size_t combinations, bool resume,
               bool force);
  ~SweepJournal();
  SweepJournal(const SweepJournal&) = delete;
  SweepJournal& operator=(const SweepJournal&) = delete;

  // The points of this and earlier processes, by combination.
  std::map<size_t, SweepPoint> points() const;
  void append(size_t combination, const SweepPoint& point);

  // The folder that contains the members' folders.
  static std::filesystem::path members(const std::filesystem::path& folder) {
    return folder / "members";
  }
  // Whether a file with this beginning is a journal.
  static bool is_journal(std::string_view head);

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
