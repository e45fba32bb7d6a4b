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

}  // namespace

std::vector<LaunchUse> group_launches(const std::vector<LaunchRecord>& launches) {
  std::vector<LaunchUse> uses;
  for (const LaunchRecord& launch : launches) {
    auto found = std::find_if(uses.begin(), uses.end(), [&](const LaunchUse& use) {
      return use.launch.name == launch.name &&
             std::equal(use.launch.grid, use.launch.grid + 3, launch.grid) &&
             std::equal(use.launch.block, use.launch.block + 3, launch.block);
    });
    if (found == uses.end()) found = uses.insert(uses.end(), LaunchUse{launch, 0, 0});
    ++found->count;
    found->seconds += launch.end - launch.begin;
  }
  return uses;
}

std::vector<ApiUse> heaviest_calls(const std::vector<ApiRecord>& calls) {
  std::map<std::string, ApiUse> by_name;
  double all = 0;
  for (const ApiRecord& call : calls) {
    ApiUse& use = by_name[call.name];
    use.name = call.name;
    ++use.calls;
    use.seconds += call.end - call.begin;
    all += call.end - call.begin;
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
