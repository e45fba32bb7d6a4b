#include "ridgeline/core/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "ridgeline/core/error.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// A group without a limit has "max" there, which is not a number.
std::optional<size_t> read_number(const fs::path& file) {
  size_t number = 0;
  if (std::ifstream(file) >> number) return number;
  return std::nullopt;
}

// Adds up the numbers of the given keys in a file of lines "KEY NUMBER".
size_t sum_of(const fs::path& file, std::initializer_list<std::string_view> keys) {
  std::ifstream in(file);
  size_t sum = 0, number = 0;
  for (std::string key; in >> key >> number;) {
    if (std::ranges::find(keys, std::string_view(key)) != keys.end()) sum += number;
  }
  return sum;
}

size_t available(const fs::path& meminfo) {
  std::ifstream in(meminfo);
  for (std::string key; in >> key;) {
    size_t kib = 0;
    if (key == "MemAvailable:" && in >> kib) return kib * 1024;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kNoLimit;
}

size_t left(size_t limit, size_t used, size_t cache) {
  used -= std::min(used, cache);
  return limit - std::min(limit, used);
}

size_t left_in_v2(const fs::path& group) {
  const auto most = read_number(group / "memory.max"), high = read_number(group / "memory.high");
  const auto used = read_number(group / "memory.current");
  if (!used || (!most && !high)) return kNoLimit;
  return left(std::min(most.value_or(kNoLimit), high.value_or(kNoLimit)), *used,
              sum_of(group / "memory.stat", {"active_file", "inactive_file"}));
}

size_t left_in_v1(const fs::path& group) {
  const auto most = read_number(group / "memory.limit_in_bytes");
  const auto used = read_number(group / "memory.usage_in_bytes");
  if (!most || !used) return kNoLimit;
  // The totals include child groups, as the usage does.
  return left(*most, *used,
              sum_of(group / "memory.stat", {"total_active_file", "total_inactive_file"}));
}

// Returns the minimum of in_group() for `root`/`path` and every folder above it up to `root`.
size_t least_of_ancestors(const fs::path& root, const std::string& path,
                          size_t (*in_group)(const fs::path&)) {
  size_t least = in_group(root);
  fs::path group = root;
  for (const fs::path& part : fs::path(path).relative_path()) {
    if (part == "..") break;  // a group outside of this namespace
    group /= part;
    least = std::min(least, in_group(group));
  }
  return least;
}

// Each line of /proc/self/cgroup is ID:CONTROLLERS:PATH; version 2 has the ID 0 and no controllers.
size_t cgroup_memory_left(const MemoryFiles& files) {
  std::ifstream in(files.proc / "self" / "cgroup");
  size_t least = std::min(left_in_v2(files.cgroups), left_in_v1(files.cgroups / "memory"));
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      least = std::min(least, least_of_ancestors(files.cgroups, path, left_in_v2));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, least_of_ancestors(files.cgroups / "memory", path, left_in_v1));
    }
  }
  return least;
}

}  // namespace

size_t free_host_memory(const MemoryFiles& files) {
  return std::min(available(files.proc / "meminfo"), cgroup_memory_left(files));
}

void require_host_memory(size_t bytes, std::string_view help) {
  constexpr size_t kLarge = size_t{1} << 22;
  if (bytes <= kLarge) return;
  const size_t free = free_host_memory();
  if (bytes <= free) return;
  throw_error(ErrorKind::device, "out of memory: wanted {} bytes, {} free; {}", bytes, free, help);
}

}  // namespace ridgeline
