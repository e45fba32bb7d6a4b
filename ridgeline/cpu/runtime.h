#pragma once

#include <atomic>
#include <string>

#include "ridgeline/core/runtime.h"
#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu {

// The host as a device. Its kernels share one pool of threads.
class CpuRuntime final : public Runtime {
 public:
  explicit CpuRuntime(int threads) : pool_(threads) {}

  ThreadPool& pool() { return pool_; }
  const ThreadPool& pool() const { return pool_; }
  ThreadPool* thread_pool() override { return &pool_; }

  Device device() const override { return {}; }
  std::string fingerprint() const override;

  // Aligned to a cache line, with one more readable cache line after the end, so that a vector load
  // at the last element stays inside.
  void* allocate(size_t bytes) override;
  void release(void* memory) noexcept override;

  void upload(void* device, const void* host, size_t bytes) override;
  void download(void* host, const void* device, size_t bytes) override;
  void synchronize() override {}
  size_t free_memory() const override;

  double time(const std::function<void()>& run, double budget) override;

 private:
  ThreadPool pool_;
  std::atomic<size_t> large_blocks_{0};  // that were allocated
};

// The runtime of a CPU kernel: the planner gives kernels only the runtime of their own target.
inline CpuRuntime& cpu_runtime(Runtime& runtime) { return static_cast<CpuRuntime&>(runtime); }
inline const CpuRuntime& cpu_runtime(const Runtime& runtime) {
  return static_cast<const CpuRuntime&>(runtime);
}

}  // namespace ridgeline::cpu
