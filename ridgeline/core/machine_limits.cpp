#include "ridgeline/core/machine_limits.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

// Threads besides those that compute: `infer` has one each to read, to write, to decode and to
// drive a device, and ranks have one watchdog and one sender.
constexpr int kSpareThreads = 8;

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// Returns the number of threads of this process that the kernel counts, or 0 without /proc.
int threads_here() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    int count = 0;
    if (key == "Threads:" && status >> count) return count;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// The kernel still counts a joined thread for a moment, and until then it may refuse a new one in
// its place.
void wait_until_uncounted(int threads_before) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(200);
  while (Clock::now() < deadline) {
    const int now = threads_here();
    if (now <= threads_before && now > 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(now > 0 ? 100 : 5000));
    if (now == 0) return;
  }
}

size_t usual_stack() {
  size_t bytes = 0;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return 0;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

void* wait_for_gate(void* gate) {
  static_cast<std::atomic<bool>*>(gate)->wait(false);
  return nullptr;
}

// "150000 100000" or "max 100000"
double quota_in_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : kNoQuota;
}

double quota_in_v1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;  // a quota of -1 is none
  const bool both = quota_file >> quota && period_file >> period;
  return both && quota > 0 && period > 0 ? quota / period : kNoQuota;
}

// Returns the minimum of in_group() for `root` and every folder on the way to `root`/`path`. In a
// container a group may be mounted at the top under another name; folders that do not exist set no
// limit.
double least_along_path(const fs::path& root, const std::string& path,
                        double (*in_group)(const fs::path&)) {
  double least = in_group(root);
  fs::path group = root;
  for (const fs::path& part : fs::path(path).relative_path()) {
    if (part == "..") break;
    group /= part;
    least = std::min(least, in_group(group));
  }
  return least;
}

}  // namespace

int obtainable_threads(int wanted, size_t stack_bytes) {
  if (wanted <= 0) return 0;
  const int before = threads_here();
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return 0;
  if (stack_bytes > 0) pthread_attr_setstacksize(&attributes, stack_bytes);
  std::vector<pthread_t> threads;
  threads.reserve(size_t(wanted));
  std::atomic<bool> gate = false;
  for (int i = 0; i < wanted; ++i) {
    pthread_t thread{};
    if (pthread_create(&thread, &attributes, wait_for_gate, &gate) != 0) break;
    threads.push_back(thread);
  }
  gate = true;
  gate.notify_all();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  if (!threads.empty()) wait_until_uncounted(before);
  return int(threads.size());
}

int affordable_threads(int wanted) {
  if (wanted <= 1) return 1;
  const int all = 2 * (wanted - 1) + kSpareThreads;
  // If address space is limited, stacks may take at most a quarter of what is left.
  const int given = obtainable_threads(all, address_space_is_limited() ? 4 * usual_stack() : 0);
  return given >= all ? wanted : 1 + std::max(0, (given - kSpareThreads) / 2);
}

bool address_space_is_limited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

bool has_address_space(size_t bytes) {
  if (!address_space_is_limited()) return true;
  void* const memory =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, bytes);
  return true;
}

// Each line of /proc/self/cgroup is ID:CONTROLLERS:PATH; version 2 has no controllers.
double cpu_quota(const QuotaFiles& files) {
  double least = std::min({quota_in_v2(files.cgroups), quota_in_v1(files.cgroups / "cpu"),
                           quota_in_v1(files.cgroups / "cpu,cpuacct")});
  std::ifstream in(files.proc / "self" / "cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (names.empty()) {
      least = std::min(least, least_along_path(files.cgroups, path, quota_in_v2));
    } else if (("," + names + ",").find(",cpu,") != std::string::npos) {
      least = std::min({least, least_along_path(files.cgroups / names, path, quota_in_v1),
                        least_along_path(files.cgroups / "cpu", path, quota_in_v1)});
    }
  }
  return least;
}

}  // namespace ridgeline
