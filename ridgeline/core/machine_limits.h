#pragma once

#include <cstddef>
#include <filesystem>

namespace ridgeline {

// Returns how many of `wanted` additional threads the system grants now: it creates them all at
// once, each with a stack of `stack_bytes` (0: the default), and joins them. The system enforces
// limits on processes (ulimit -u, pids.max of a control group) and on address space (ulimit -v)
// only when a thread is created, and libraries that create their own threads abort the process
// there.
int obtainable_threads(int wanted, size_t stack_bytes = 0);

// Returns how many of `wanted` threads a device may use: the system must grant that many twice, for
// our pool and for OpenMP's, and a few for reading and writing, with at most a quarter of the
// address space for their stacks. At least 1, which is the calling thread.
int affordable_threads(int wanted);

// Returns whether the address space of this process is limited (ulimit -v).
bool address_space_is_limited();

// Returns whether `bytes` more can be mapped. True without a limit; free memory is not checked.
bool has_address_space(size_t bytes);

// The kernel's files about control groups; tests use folders of their own.
struct QuotaFiles {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroups = "/sys/fs/cgroup";
};

// Returns the number of processors' worth of time that the control group of this process and all
// groups above it allow: cpu.max of version 2, cpu.cfs_quota_us of version 1. Infinite without a
// limit.
double cpu_quota(const QuotaFiles& files = {});

}  // namespace ridgeline
