#include "ridgeline/cpu/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace ridgeline::cpu {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

size_t machine_has() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    size_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kNoLimit;
}

size_t group_leaves() {
  size_t most = 0, used = 0;
  // A group without a limit says "max", which is no number.
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> most &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    return most - std::min(most, used);
  }
  return kNoLimit;
}

}  // namespace

size_t free_memory() { return std::min(machine_has(), group_leaves()); }

}  // namespace ridgeline::cpu
