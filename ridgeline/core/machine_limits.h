#pragma once

#include <cstddef>
#include <filesystem>

namespace ridgeline {

// How many of `wanted` more threads the system gives at this moment: makes them all at once, each
// with a stack of `stack_bytes` (0: the usual one), and ends them again. Limits on processes
// (ulimit -u, pids.max of a control group) and on address space (ulimit -v) are kept by the system
// only when a thread is made, and libraries that make threads of their own end the process there.
int obtainable_threads(int wanted, size_t stack_bytes = 0);

// Of `wanted` threads for a device's work as many as the system gives twice, for a pool of ours and
// for OpenMP's, beside a few for reading and writing, with a quarter of the address space for their
// stacks; at least 1, which is the calling thread.
int affordable_threads(int wanted);

// Whether this process may map only so much (ulimit -v).
bool address_space_is_limited();

// Whether `bytes` more can be mapped. Always so without a limit: memory itself is another matter.
bool has_address_space(size_t bytes);

// Where the kernel tells of control groups; tests give folders of their own.
struct QuotaFiles {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroups = "/sys/fs/cgroup";
};

// Processors' worth of time that the control group of this process, and every group above it, may
// use: cpu.max of version 2, cpu.cfs_quota_us of version 1. Infinite without a limit.
double cpu_quota(const QuotaFiles& files = {});

}  // namespace ridgeline
