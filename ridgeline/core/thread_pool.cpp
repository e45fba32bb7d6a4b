#include "ridgeline/core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/machine_limits.h"
#include "ridgeline/core/thread_trace.h"

namespace ridgeline {
namespace {

// About 200 us of spinning where a pause takes 50 ns (Zen 4, Intel since Skylake): longer than the
// gap between two regions of a training step, far shorter than a scheduler tick, so that a pool
// that waits on a busy machine gives its core away.
constexpr int kSpins = 4000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The active trace, if any, and this thread's part of the region that it is in.
std::atomic<ThreadTrace*> active_trace{nullptr};
thread_local ThreadSpan* current_span = nullptr;

int64_t nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Calls f, a thread's part of a region, and records its span in the trace.
template <typename F>
void traced(int thread, F f) {
  ThreadTrace* trace = active_trace.load(std::memory_order_relaxed);
  if (trace == nullptr) return f();
  ThreadSpan span{thread, nanoseconds(), 0, 0};
  current_span = &span;
  f();
  current_span = nullptr;
  span.end = nanoseconds();
  trace->add(span);
}

// Counts its own lifetime as time spent waiting.
struct TracedWait {
  const int64_t begin = current_span != nullptr ? nanoseconds() : 0;
  ~TracedWait() {
    if (current_span != nullptr) current_span->waited += nanoseconds() - begin;
  }
};

template <typename T>
void wait_while_equal(std::atomic<T>& atomic, T old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (atomic.load(std::memory_order_acquire) != old) return;
    pause();
  }
  while (atomic.load(std::memory_order_acquire) == old) atomic.wait(old);
}

// A region as its workers see it.
struct Region {
  void (*entry)(void* context, int thread);
  void* context;
  int size;  // of the pool
  int cpu;   // of the caller when the region began; negative: unknown
};

// Moves the calling thread off this processor, if there are enough others; it may return later.
void leave(int cpu, int threads) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof(all), &all) != 0 || CPU_COUNT(&all) < threads) return;
  cpu_set_t others = all;
  CPU_CLR(size_t(cpu), &others);
  if (sched_setaffinity(0, sizeof(others), &others) == 0) sched_setaffinity(0, sizeof(all), &all);
}

// On a busy machine the scheduler may wake a worker on its caller's processor and leave it there:
// both then take turns, and each spins while the other has to compute.
void enter(void* region, int thread) {
  const auto& [entry, context, size, cpu] = *static_cast<const Region*>(region);
  if (thread != 0 && cpu >= 0 && cpu == sched_getcpu()) leave(cpu, size);
  entry(context, thread);
}

}  // namespace

int available_threads() {
  int count = int(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) count = std::max(1, CPU_COUNT(&mask));
  const double quota = std::ceil(cpu_quota());
  return quota < count ? std::max(1, int(quota)) : count;
}

int resolve_threads(int requested) {
  constexpr int kMost = 4096;
  if (requested < 0 || requested > kMost) {
    throw_error(ErrorKind::usage, "--threads {}: give a count from 1 to {}", requested, kMost);
  }
  if (requested > 0) return requested;
  if (const char* text = std::getenv("RIDGELINE_THREADS"); text != nullptr && *text != '\0') {
    char* end = nullptr;
    const long count = std::strtol(text, &end, 10);
    if (*end != '\0' || count < 1 || count > kMost) {
      throw_error(ErrorKind::usage, "RIDGELINE_THREADS={}: give a count from 1 to {}", text, kMost);
    }
    return int(count);
  }
  return available_threads();
}

ThreadPool::ThreadPool(int threads) : size_(std::max(1, threads)) {
  try {
    for (int i = 1; i < size_; ++i) threads_.emplace_back([this, i] { worker(i); });
  } catch (const std::system_error& error) {
    const size_t made = threads_.size();
    stop();  // the destructor does not run for a constructor that throws
    throw_error(ErrorKind::device,
                "the system allows {} threads, not {} ({}): use fewer with --threads", made + 1,
                size_, error.code().message());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::launch(Entry entry, void* context) {
  Region region{entry, context, size_, sched_getcpu()};
  entry_ = enter;
  context_ = &region;
  running_.store(size_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  traced(0, [&] { entry(context, 0); });
  for (int left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    wait_while_equal(running_, left);
  }
}

void ThreadPool::worker(int thread) {
  uint32_t seen = 0;
  while (true) {
    wait_while_equal(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    traced(thread, [&] { entry_(context_, thread); });
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadPool::barrier() {
  if (size_ == 1) return;
  const TracedWait wait;
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  wait_while_equal(phase_, phase);
}

ThreadTrace::ThreadTrace() {
  spans_.reserve(4096);
  active_trace.store(this, std::memory_order_relaxed);
}
ThreadTrace::~ThreadTrace() { active_trace.store(nullptr, std::memory_order_relaxed); }

void ThreadTrace::add(const ThreadSpan& span) {
  const std::lock_guard lock(mutex_);
  spans_.push_back(span);
}

std::vector<ThreadSpan> ThreadTrace::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

}  // namespace ridgeline
