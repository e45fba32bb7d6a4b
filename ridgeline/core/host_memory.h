#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace ridgeline {

// The kernel's files about memory; tests use folders of their own.
struct MemoryFiles {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroups = "/sys/fs/cgroup";
};

// Bytes of host memory that this process can still take: the least of
// - MemAvailable in /proc/meminfo, and
// - what the limits of its control group, and of every group above that one, leave. The group is
//   the one in /proc/self/cgroup. Version 2 reads memory.max and memory.high less memory.current
//   in /sys/fs/cgroup/GROUP; version 1 reads memory.limit_in_bytes less memory.usage_in_bytes in
//   /sys/fs/cgroup/memory/GROUP. File cache (memory.stat) counts as free: the kernel drops it
//   before it runs out. A container often sees its own group at the top of /sys/fs/cgroup under
//   another name; folders that are not there are skipped.
// Files that are missing or hold no number set no limit; the largest size_t means that none did.
size_t free_host_memory(const MemoryFiles& files = {});

// Throws Error(device) with the wanted and free bytes if `bytes` exceeds the available memory.
// Linux overcommits memory and kills a process that then touches it, so large requests check here
// first. Requests of up to 4 MiB are not checked. `help` says what would need less.
void require_host_memory(size_t bytes,
                         std::string_view help = "use a smaller data set, batch or model");

}  // namespace ridgeline
