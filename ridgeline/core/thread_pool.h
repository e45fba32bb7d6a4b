#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace ridgeline {

class ThreadStage;

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
//
// On a busy machine a thread that the scheduler has taken off its processor would hold up all
// others at their next barrier. When that happens, fewer system threads run the regions for a
// while: each takes the parts of several threads in turn, from barrier to barrier, on a stack for
// each. What a region computes does not depend on who runs its parts.
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

  // Called inside a region, repeatedly, by a thread that waits for others without a barrier: they
  // may be other parts of its own system thread.
  void yield();

  // How many system threads run the next region. set_runners() fixes it, for tests; false if this
  // build or the system does not allow fewer than size().
  int runners() const { return runners_; }
  bool set_runners(int runners);

 private:
  using Entry = void (*)(void* context, int thread);
  class Crowd;  // how often the scheduler holds up threads that the caller waits for
  void launch(Entry entry, void* context);
  void play(int runner);  // runs this runner's parts of the region
  void worker(int runner);
  void meet(int runner);  // the barrier of the runners
  template <typename T>
  void wait(std::atomic<T>& atomic, T old, int runner);
  bool change_runners(int runners);
  void stop();  // ends and joins the threads

  const int size_;
  Entry entry_ = nullptr;
  void* context_ = nullptr;
  int cpu_ = -1;  // of the caller when the region began; negative: unknown
  bool stop_ = false;
  bool held_up_ = false;  // the scheduler held up a worker that the caller waited for
  int runners_;
  std::vector<std::unique_ptr<ThreadStage>> stages_;  // by runner, made when first needed
  std::unique_ptr<Crowd> crowd_;
  alignas(64) std::atomic<uint32_t> generation_{0};  // of regions, and their runners
  alignas(64) std::atomic<int> running_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::vector<std::thread> threads_;
};

}  // namespace ridgeline
