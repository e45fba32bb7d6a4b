#include "ridgeline/core/thread_pool.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/machine_limits.h"
#include "ridgeline/core/thread_stage.h"
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

constexpr int kMostThreads = 4096;

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
bool changes_soon(const std::atomic<T>& atomic, T old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (atomic.load(std::memory_order_acquire) != old) return true;
    pause();
  }
  return false;
}

template <typename T>
void sleep_while_equal(const std::atomic<T>& atomic, T old) {
  while (atomic.load(std::memory_order_acquire) == old) atomic.wait(old);
}

// A word has the number of a region and, in its low bits, of the system threads that run it: a
// worker that wakes late must not take those of the next region for those of the one it saw.
constexpr uint32_t kRunnerBits = 13;
static_assert(kMostThreads < 1 << kRunnerBits);

// The pools whose regions the calling thread is in, the innermost first.
struct Playing {
  const ThreadPool* pool;
  int runner;
  ThreadStage* stage;  // null: a part has the thread for itself
  const Playing* outer;
};
thread_local const Playing* playing = nullptr;

const Playing& in_region_of(const ThreadPool* pool) {
  const Playing* at = playing;
  while (at->pool != pool) at = at->outer;
  return *at;
}

// Moves the calling thread off this processor, if there are enough others; it may return later.
void leave(int cpu, int threads) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof(all), &all) != 0 || CPU_COUNT(&all) < threads) return;
  cpu_set_t others = all;
  CPU_CLR(size_t(cpu), &others);
  if (sched_setaffinity(0, sizeof(others), &others) == 0) sched_setaffinity(0, sizeof(all), &all);
}

}  // namespace

// The caller asks, whenever it has slept because others were not ready, how long these had waited
// for a processor meanwhile.
class ThreadPool::Crowd {
 public:
  explicit Crowd(int size)
      : ids(size_t(size)), files_(size_t(size), kUnknown), before_(size_t(size)) {}
  ~Crowd() {
    for (const int file : files_) {
      if (file >= 0) close(file);
    }
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  std::vector<std::atomic<int>> ids;  // of the system
  bool fixed = false;

  void begin(int runners) {
    for (int i = 1; i < runners; ++i) before_[size_t(i)] = waited(size_t(i));
  }
  // Whether the scheduler held up one of them since begin().
  bool held_up(int runners) {
    int64_t most = 0;
    for (int i = 1; i < runners; ++i) {
      const int64_t before = before_[size_t(i)], now = waited(size_t(i));
      if (before >= 0 && now >= 0) most = std::max(most, now - before);
    }
    return most > kHeldUp;
  }

  // The time at which more system threads are tried again, after fewer begin.
  void fewer() {
    const int64_t now = nanoseconds();
    period_ = now - until_ > period_ ? kLeastPeriod : std::min(2 * period_, kMostPeriod);
    until_ = now + period_;
  }
  bool time_for_more() {
    const int64_t now = nanoseconds();
    if (now < until_) return false;
    until_ = now + period_;
    return true;
  }

 private:
  // Shorter delays than a slice of time are those of a thread that wakes up.
  static constexpr int64_t kHeldUp = 1'000'000;
  static constexpr int64_t kLeastPeriod = 10'000'000, kMostPeriod = 1'000'000'000;
  static constexpr int kUnknown = -1, kNone = -2;

  // Nanoseconds that a worker was ready to run and had no processor; -1: unknown.
  int64_t waited(size_t runner) {
    int& file = files_[runner];
    const int id = ids[runner].load(std::memory_order_acquire);
    if (file == kUnknown && id != 0) {
      file = open(fmt::format("/proc/self/task/{}/schedstat", id).c_str(), O_RDONLY | O_CLOEXEC);
      if (file < 0) file = kNone;
    }
    char text[96];
    const ssize_t bytes = file >= 0 ? pread(file, text, sizeof(text) - 1, 0) : 0;
    if (bytes <= 0) return -1;
    text[bytes] = 0;
    char* end = nullptr;
    std::strtoll(text, &end, 10);  // time on a processor
    return std::strtoll(end, nullptr, 10);
  }

  std::vector<int> files_;
  std::vector<int64_t> before_;
  int64_t period_ = kLeastPeriod, until_ = 0;
};

int available_threads() {
  int count = int(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) count = std::max(1, CPU_COUNT(&mask));
  const double quota = std::ceil(cpu_quota());
  return quota < count ? std::max(1, int(quota)) : count;
}

int resolve_threads(int requested) {
  constexpr int kMost = kMostThreads;
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

ThreadPool::ThreadPool(int threads) : size_(std::max(1, threads)), runners_(size_) {
  if (size_ > 1 && ThreadStage::supported()) crowd_ = std::make_unique<Crowd>(size_);
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
  generation_.fetch_add(1 << kRunnerBits, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool ThreadPool::set_runners(int runners) {
  if (!change_runners(std::clamp(runners, 1, size_))) return false;
  if (crowd_ != nullptr) crowd_->fixed = true;
  return true;
}

bool ThreadPool::change_runners(int runners) {
  if (runners < size_) {
    if (crowd_ == nullptr) return false;
    stages_.resize(size_t(size_));
    for (int i = 0; i < runners; ++i) {
      std::unique_ptr<ThreadStage>& stage = stages_[size_t(i)];
      if (stage == nullptr) stage = std::make_unique<ThreadStage>();
      if (!stage->reserve((size_ - i + runners - 1) / runners)) return false;
    }
  }
  runners_ = runners;
  return true;
}

void ThreadPool::launch(Entry entry, void* context) {
  if (runners_ < size_ && !crowd_->fixed && crowd_->time_for_more()) {
    change_runners(std::min(2 * runners_, size_));
  }
  entry_ = entry;
  context_ = context;
  if (runners_ > 1) {
    cpu_ = sched_getcpu();
    running_.store(runners_ - 1, std::memory_order_relaxed);
    const uint32_t number = (generation_.load(std::memory_order_relaxed) >> kRunnerBits) + 1;
    generation_.store(number << kRunnerBits | uint32_t(runners_), std::memory_order_release);
    generation_.notify_all();
  }
  play(0);
  if (runners_ == 1) return;
  for (int left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    wait(running_, left, 0);
  }
  if (!std::exchange(held_up_, false) || crowd_->fixed) return;
  if (change_runners(std::max(1, runners_ / 2))) crowd_->fewer();
}

// Runs this runner's parts of the region.
void ThreadPool::play(int runner) {
  const Playing mine{this, runner, runners_ < size_ ? stages_[size_t(runner)].get() : nullptr,
                     playing};
  playing = &mine;
  if (mine.stage == nullptr) {
    traced(runner, [&] { entry_(context_, runner); });
  } else {
    mine.stage->run((size_ - runner + runners_ - 1) / runners_,
                    [&](int part) {
                      const int thread = runner + part * runners_;
                      traced(thread, [&] { entry_(context_, thread); });
                    },
                    [&] { meet(runner); });
  }
  playing = mine.outer;
}

void ThreadPool::worker(int runner) {
  if (crowd_ != nullptr) crowd_->ids[size_t(runner)].store(gettid(), std::memory_order_release);
  uint32_t seen = 0;
  while (true) {
    wait(generation_, seen, runner);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    if (runner >= int(seen % (1 << kRunnerBits))) continue;
    // On a busy machine the scheduler may wake a worker on its caller's processor and leave it
    // there: both then take turns, and each spins while the other has to compute.
    if (cpu_ >= 0 && cpu_ == sched_getcpu()) leave(cpu_, size_);
    play(runner);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

template <typename T>
void ThreadPool::wait(std::atomic<T>& atomic, T old, int runner) {
  if (changes_soon(atomic, old)) return;
  const bool asks = runner == 0 && crowd_ != nullptr;
  if (asks) crowd_->begin(runners_);
  sleep_while_equal(atomic, old);
  if (asks) held_up_ |= crowd_->held_up(runners_);
}

void ThreadPool::barrier() {
  if (size_ == 1) return;
  const TracedWait wait;
  const Playing& here = in_region_of(this);
  if (here.stage == nullptr) return meet(here.runner);
  ThreadSpan* const span = current_span;
  here.stage->pause(true);
  current_span = span;
}

void ThreadPool::yield() {
  const Playing& here = in_region_of(this);
  if (here.stage == nullptr) {
    std::this_thread::yield();
    return;
  }
  ThreadSpan* const span = current_span;
  here.stage->pause(false);
  current_span = span;
}

// Returns when every runner has called it.
void ThreadPool::meet(int runner) {
  if (runners_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == runners_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  wait(phase_, phase, runner);
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
