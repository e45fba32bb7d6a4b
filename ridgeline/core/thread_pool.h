#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace ridgeline {

// The number of threads this process may use: the affinity mask, limited by the cgroup's CPU quota.
int available_threads();

// Returns the thread count to use: `requested` (a flag; 0 if not given), else $RIDGELINE_THREADS,
// else available_threads(). Throws Error(usage) for an invalid value.
int resolve_threads(int requested);

// The part [begin, end) of `count` elements that `thread` of `threads` handles; all parts but the
// last are multiples of `grain`.
struct Range {
  int64_t begin, end;
};
constexpr Range split(int64_t count, int thread, int threads, int64_t grain = 1) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t begin = grains * thread / threads * grain;
  const int64_t end = grains * (thread + 1) / threads * grain;
  return {begin < count ? begin : count, end < count ? end : count};
}

// A pool of threads that run one function together. The caller is thread 0. Between regions the
// others spin briefly, then sleep, so that back-to-back regions cost about a microsecond and an
// idle pool costs nothing. One region runs at a time; functions must not throw.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls f(thread) once for each thread in [0, size()) and returns when all have returned.
  template <typename F>
  void run(F&& f) {
    if (size_ == 1) {
      f(0);
      return;
    }
    using Function = std::remove_reference_t<F>;
    launch([](void* context, int thread) { (*static_cast<Function*>(context))(thread); },
           const_cast<void*>(static_cast<const void*>(&f)));
  }

  // Splits `count` elements: calls f(range) on each thread, with ranges in multiples of `grain`.
  // The caller computes alone if there are fewer than `least` elements per thread, because waking
  // the others costs a microsecond or two.
  template <typename F>
  void share(int64_t count, int64_t grain, int64_t least, F&& f) {
    if (size_ == 1 || count < 2 * least) {
      f(Range{0, count});
      return;
    }
    run([&](int thread) { f(split(count, thread, size_, grain)); });
  }

  // Called inside a region; returns when every thread of the pool has called it.
  void barrier();

 private:
  using Entry = void (*)(void* context, int thread);
  void launch(Entry entry, void* context);
  void worker(int thread);
  void stop();  // ends and joins the threads

  const int size_;
  Entry entry_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> running_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::vector<std::thread> threads_;
};

}  // namespace ridgeline
