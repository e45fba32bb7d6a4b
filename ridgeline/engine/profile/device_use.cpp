#include "ridgeline/engine/profile/device_use.h"

#include <algorithm>
#include <limits>
#include <map>

namespace ridgeline::engine {
namespace {

struct Interval {
  double begin, end;
};

// Merges overlapping intervals and sorts them.
std::vector<Interval> merged(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> result;
  for (const Interval& each : all) {
    if (!result.empty() && each.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, each.end);
    } else {
      result.push_back(each);
    }
  }
  return result;
}

// Returns where at least two of the intervals overlap, merged and sorted.
std::vector<Interval> overlaps(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> common;
  double reached = -std::numeric_limits<double>::infinity();  // the latest end so far
  for (const Interval& each : all) {
    if (each.begin < reached) common.push_back({each.begin, std::min(each.end, reached)});
    reached = std::max(reached, each.end);
  }
  return merged(std::move(common));
}

double length(const std::vector<Interval>& all) {
  double sum = 0;
  for (const Interval& each : all) sum += each.end - each.begin;
  return sum;
}

template <typename Records>
std::vector<Interval> intervals(const Records& records) {
  std::vector<Interval> all;
  all.reserve(records.size());
  for (const auto& record : records) all.push_back({record.begin, record.end});
  return all;
}

// Counts one more use that took this long.
template <typename Count, typename Use>
void add_time(double seconds, Count& count, Use& use) {
  use.least = count == 0 ? seconds : std::min(use.least, seconds);
  use.most = std::max(use.most, seconds);
  use.seconds += seconds;
  ++count;
}

}  // namespace

std::vector<LaunchUse> group_launches(const std::vector<LaunchRecord>& launches) {
  std::vector<LaunchUse> uses;
  for (const LaunchRecord& launch : launches) {
    auto found = std::find_if(uses.begin(), uses.end(), [&](const LaunchUse& use) {
      return use.launch.name == launch.name &&
             std::equal(use.launch.grid, use.launch.grid + 3, launch.grid) &&
             std::equal(use.launch.block, use.launch.block + 3, launch.block);
    });
    if (found == uses.end()) found = uses.insert(uses.end(), LaunchUse{.launch = launch});
    add_time(launch.end - launch.begin, found->count, *found);
  }
  return uses;
}

namespace {

template <typename Records>
std::vector<ApiUse> heaviest(const Records& records) {
  std::map<std::string, ApiUse> by_name;
  double all = 0;
  for (const auto& record : records) {
    ApiUse& use = by_name[record.name];
    use.name = record.name;
    add_time(record.end - record.begin, use.calls, use);
    all += record.end - record.begin;
  }
  std::vector<ApiUse> uses;
  for (auto& [name, use] : by_name) {
    use.share = all > 0 ? use.seconds / all : 0;
    uses.push_back(use);
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [](const ApiUse& a, const ApiUse& b) { return a.seconds > b.seconds; });
  double sum = 0;
  size_t count = 0;
  while (count < uses.size() && sum < 0.9) sum += uses[count++].share;
  uses.resize(count);
  return uses;
}

}  // namespace

std::vector<ApiUse> heaviest_calls(const std::vector<ApiRecord>& calls) { return heaviest(calls); }

std::vector<ApiUse> heaviest_functions(const std::vector<LaunchRecord>& launches) {
  return heaviest(launches);
}

std::vector<CopyUse> copies_by_kind(const std::vector<CopyRecord>& copies) {
  std::vector<CopyUse> uses;
  for (const CopyRecord& copy : copies) {
    auto found = std::find_if(uses.begin(), uses.end(),
                              [&](const CopyUse& use) { return use.kind == copy.kind; });
    if (found == uses.end()) found = uses.insert(uses.end(), CopyUse{.kind = copy.kind});
    add_time(copy.end - copy.begin, found->count, *found);
    found->bytes += copy.bytes;
    if (copy.pageable) found->pageable_bytes += copy.bytes;
  }
  return uses;
}

DeviceUse device_use(const DeviceTrace& trace) {
  DeviceUse use;
  const auto launches = intervals(trace.launches), copies = intervals(trace.copies);
  std::vector<Interval> both = launches;
  both.insert(both.end(), copies.begin(), copies.end());
  const auto any = merged(both), any_launch = merged(launches), any_copy = merged(copies);
  if (any.empty()) return use;
  const double wall = any.back().end - any.front().begin;
  if (wall > 0) use.busy = length(any) / wall;
  if (length(any_launch) > 0) use.concurrency = length(launches) / length(any_launch);
  for (const CopyRecord& copy : trace.copies) use.copied_bytes += double(copy.bytes);
  const double copying = length(any_copy);
  if (copying > 0) {
    use.copy_rate = use.copied_bytes / copying;
    if (wall > 0) use.copy_share = copying / wall;
    use.copy_overlap = length(overlaps(copies)) / copying;
    // |launches and copies| = |launches| + |copies| - |either|
    use.overlap = std::max(0.0, length(any_launch) + copying - length(any)) / copying;
  }
  return use;
}

void add_to_timeline(const DeviceTrace& trace, prof::Timeline& timeline) {
  double zero = std::numeric_limits<double>::infinity();
  for (const auto& record : trace.launches) zero = std::min(zero, record.begin);
  for (const auto& record : trace.copies) zero = std::min(zero, record.begin);
  for (const auto& record : trace.calls) zero = std::min(zero, record.begin);
  for (const ApiRecord& call : trace.calls) {
    const auto lane = timeline.lane(0, fmt::format("host thread {}", call.thread));
    timeline.add({lane, call.name, "call", call.begin - zero, call.end - call.begin, {}});
  }
  for (const LaunchRecord& launch : trace.launches) {
    const auto lane = timeline.lane(0, fmt::format("stream {}", launch.stream));
    const auto product = [](const int* extent) {
      return double(extent[0]) * extent[1] * extent[2];
    };
    timeline.add({lane,
                  launch.name,
                  "launch",
                  launch.begin - zero,
                  launch.end - launch.begin,
                  {{"blocks", product(launch.grid)},
                   {"threads_a_block", product(launch.block)},
                   {"registers", double(launch.registers)},
                   {"shared_bytes", double(launch.shared)},
                   {"occupancy", launch.occupancy}}});
  }
  for (const CopyRecord& copy : trace.copies) {
    const auto lane = timeline.lane(0, fmt::format("stream {}", copy.stream));
    timeline.add({lane,
                  fmt::format("copy {}", copy.kind),
                  "copy",
                  copy.begin - zero,
                  copy.end - copy.begin,
                  {{"bytes", double(copy.bytes)}}});
  }
}

}  // namespace ridgeline::engine
