#include "ridgeline/cpu/runtime.h"

#include <hwy/highway.h>
#include <hwy/targets.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/core/host_memory.h"

#ifdef RIDGELINE_HAVE_ONEDNN
#include <dnnl.h>
#endif

namespace ridgeline::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the text after "key :" in the file, or "" if it has no such line.
std::string field(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::string cpu_model() {
  std::string model = field("/proc/cpuinfo", "model name");
  if (model.empty()) model = field("/proc/cpuinfo", "CPU part");  // Arm
  return model.empty() ? "unknown CPU" : model;
}

const char* simd_target() {
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(usable & -usable);  // the lowest bit is the best target
}

constexpr size_t kHugePage = size_t{2} << 20;
// Large blocks begin at different places of their first page: otherwise equal indices of weights,
// gradients and moments would share the same few lines of a cache.
constexpr size_t kStagger = 8192 + 512, kStaggers = 15;

// A block of memory as the system or malloc gave it.
struct Allocation {
  void* begin;
  size_t bytes;
  bool mapped;
};

// Returns zeroed pages, or null.
void* map_pages(size_t bytes) {
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

constexpr double kLongSeconds = 5;  // of one call: longer ones are measured once

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

size_t CpuRuntime::free_memory() const { return free_host_memory(); }

std::string CpuRuntime::fingerprint() const {
  std::string text =
      fmt::format("cpu; {}; {} threads; {}", cpu_model(), pool_.size(), simd_target());
#ifdef RIDGELINE_HAVE_ONEDNN
  const dnnl_version_t* version = dnnl_version();
  text += fmt::format("; oneDNN {}.{}.{}", version->major, version->minor, version->patch);
#endif
  return text;
}

void* CpuRuntime::allocate(size_t bytes) {
  require_host_memory(bytes, "use a smaller batch or model");
  // Large blocks are zero pages that take no memory until they are touched, so a plan that is only
  // inspected is cheap. The gap before the first line stores the allocation.
  const bool large = bytes >= kHugePage;
  const size_t alignment = large ? kHugePage : kAlignment;
  const size_t skipped = large ? ++large_blocks_ % kStaggers * kStagger : 0;
  Allocation from{nullptr, align_up(bytes) + alignment + skipped + 2 * kAlignment, large};
  from.begin = large ? map_pages(from.bytes) : std::calloc(from.bytes, 1);
  if (from.begin == nullptr) {
    throw_error(ErrorKind::device, "out of memory: wanted {} bytes; use a smaller batch or model",
                from.bytes);
  }
  const auto begin = reinterpret_cast<uintptr_t>(from.begin);
  std::byte* memory =
      static_cast<std::byte*>(from.begin) + (align_up(begin + sizeof(from), alignment) - begin);
#ifdef MADV_HUGEPAGE
  // This is only a hint. The fastest tenth of steps of configs/mnist-cnn.toml takes 13.0 ms in
  // pages of 2 MiB and 15.1 in pages of 4 KiB (EPYC, a virtual machine, where a miss of the TLB
  // walks two page tables).
  if (large) madvise(memory, bytes + skipped, MADV_HUGEPAGE);
#endif
  memory += skipped;
  std::memcpy(memory - sizeof(from), &from, sizeof(from));
  return memory;
}

void CpuRuntime::release(void* memory) noexcept {
  if (memory == nullptr) return;
  Allocation from{};
  std::memcpy(&from, static_cast<std::byte*>(memory) - sizeof(from), sizeof(from));
  if (from.mapped) {
    munmap(from.begin, from.bytes);
  } else {
    std::free(from.begin);
  }
}

void CpuRuntime::upload(void* device, const void* host, size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void CpuRuntime::download(void* host, const void* device, size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

double CpuRuntime::time(const std::function<void()>& run, double budget) {
  const auto start = Clock::now();
  // If a call takes ten times the budget, it is slow or the machine is busy: a second call
  // suffices.
  run();
  if (const double first = seconds_since(start); first > 10 * budget) {
    const auto again = Clock::now();
    if (first < kLongSeconds) run();
    return first < kLongSeconds ? std::min(first, seconds_since(again)) : first;
  }
  // Warms up for a tenth of the budget, and finds how many calls make a batch long enough for the
  // clock (25 ns per reading: under a percent of 10 us).
  int64_t warm = 1;
  for (; seconds_since(start) < 0.1 * budget; ++warm) run();
  const double about = seconds_since(start) / double(warm);
  const int64_t batch = std::max<int64_t>(1, int64_t(10e-6 / std::max(about, 1e-9)));

  constexpr size_t kFewest = 3;  // for a median, even if a call takes the whole budget
  constexpr size_t kMost = 1000;
  std::vector<double> seconds;
  while (seconds.size() < kFewest || (seconds.size() < kMost && seconds_since(start) < budget)) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < batch; ++i) run();
    seconds.push_back(seconds_since(begin) / double(batch));
  }
  std::ranges::nth_element(seconds, seconds.begin() + int64_t(seconds.size() / 2));
  return seconds[seconds.size() / 2];
}

}  // namespace ridgeline::cpu
