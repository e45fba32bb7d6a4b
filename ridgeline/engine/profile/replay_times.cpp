#include "ridgeline/engine/profile/replay_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace ridgeline::engine {
namespace {

std::string like(const LaunchRecord& k) {
  return fmt::format("{} {}x{}x{} {}x{}x{}", k.name, k.grid[0], k.grid[1], k.grid[2], k.block[0],
                     k.block[1], k.block[2]);
}
std::string like(const CopyRecord& copy) { return fmt::format("{} {}", copy.kind, copy.bytes); }

// A launch or copy of a replay and the kernel it belongs to; -1 if no kernel launches such a one.
struct OwnedInterval {
  double begin, end;
  int kernel;
  size_t step;
};

// Records which kernels launch what, in their order, and how much of it a replay has.
template <typename Record>
class Owners {
 public:
  Owners(const std::vector<DeviceTrace>& alone, std::vector<Record> DeviceTrace::*records,
         const DeviceTrace& replay)
      : replay_(replay.*records) {
    for (size_t kernel = 0; kernel < alone.size(); ++kernel) {
      for (const Record& record : alone[kernel].*records)
        kernels_[like(record)].push_back(int(kernel));
    }
    for (const Record& record : replay_) ++found_[like(record)];
  }

  // The number of steps of the replay; 0 if a record is left over or missing.
  size_t steps() const {
    std::set<size_t> counts;
    for (const auto& [key, kernels] : kernels_) {
      const auto found = found_.find(key);
      const size_t count = found == found_.end() ? 0 : found->second;
      counts.insert(count % kernels.size() == 0 ? count / kernels.size() : 0);
    }
    return counts.size() == 1 ? *counts.begin() : 0;
  }

  // Adds all records of the replay. A record belongs to a kernel if the replay has such records
  // exactly as often as `steps` passes over the kernels launch them.
  void add_intervals(size_t steps, std::vector<OwnedInterval>& intervals) const {
    std::map<std::string, size_t> seen;
    for (const Record& record : replay_) {
      const std::string key = like(record);
      const auto owner = kernels_.find(key);
      OwnedInterval interval{record.begin, record.end, -1, 0};
      if (owner != kernels_.end() && found_.at(key) == steps * owner->second.size()) {
        const size_t count = seen[key]++, a_step = owner->second.size();
        interval.kernel = owner->second[count % a_step];
        interval.step = count / a_step;
      }
      intervals.push_back(interval);
    }
  }

 private:
  const std::vector<Record>& replay_;
  std::map<std::string, std::vector<int>> kernels_;
  std::map<std::string, size_t> found_;
};

// Calls share(interval, seconds) for each stretch of time between two beginnings or ends, with an
// equal part for each interval that covers it.
template <typename Share>
void split_time(const std::vector<OwnedInterval>& intervals, const Share& share) {
  std::vector<std::pair<double, size_t>> begins, ends;
  for (size_t i = 0; i < intervals.size(); ++i) {
    begins.emplace_back(intervals[i].begin, i);
    ends.emplace_back(intervals[i].end, i);
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  std::set<size_t> running;
  double now = 0;
  size_t next = 0;
  for (const auto& [end, ended] : ends) {
    const auto pass_to = [&](double time) {
      for (const size_t i : running) share(intervals[i], (time - now) / double(running.size()));
      now = time;
    };
    for (; next < begins.size() && begins[next].first <= end; ++next) {
      pass_to(begins[next].first);
      running.insert(begins[next].second);
    }
    pass_to(end);
    running.erase(ended);
  }
}

}  // namespace

std::optional<ReplayTimes> times_in_replay(const std::vector<DeviceTrace>& alone,
                                           const DeviceTrace& replay) {
  const Owners<LaunchRecord> launches(alone, &DeviceTrace::launches, replay);
  const Owners<CopyRecord> copies(alone, &DeviceTrace::copies, replay);
  const size_t steps = launches.steps();
  if (steps == 0) return std::nullopt;
  std::vector<OwnedInterval> intervals;
  launches.add_intervals(steps, intervals);
  copies.add_intervals(steps, intervals);  // copies of a step's inputs belong to no kernel
  ReplayTimes times;
  times.kernels.assign(alone.size(), std::vector<double>(steps));
  split_time(intervals, [&](const OwnedInterval& interval, double seconds) {
    if (interval.kernel >= 0) times.kernels[size_t(interval.kernel)][interval.step] += seconds;
  });
  return times;
}

}  // namespace ridgeline::engine
