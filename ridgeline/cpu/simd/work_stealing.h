#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu::simd {

// Work stealing among the threads of a parallel region. Each thread begins with its own share of
// the tasks, the same in every round, so that its operands stay in its cache; then it takes tasks
// from the shares of others, so that a temporarily slow core (another virtual machine may use its
// other hyperthread) delays nobody. Every second round runs backwards, because the data read last
// is still in the cache.
//
// The callers number the rounds, all in the same way, with a barrier between consecutive rounds.
class WorkStealing {
 public:
  static size_t counters(int threads) { return size_t(2 * threads) * kLine; }

  WorkStealing() = default;
  // `memory` holds counters(threads) numbers: one cache line for each counter.
  WorkStealing(int64_t* memory, int threads) : memory_(memory), threads_(threads) {}

  // Called by one thread; a barrier must follow before the first round.
  void clear() const { std::fill_n(memory_, counters(threads_), int64_t{0}); }

  // Calls f(task) for each task of [0, count); each task is run by one thread.
  template <typename F>
  void run(int thread, int64_t round, int64_t count, F&& f) const {
    counter(round + 1, thread)
        .store(0, std::memory_order_relaxed);  // no thread is still in the round before
    for (int i = 0; i < threads_; ++i) {
      const int owner = (thread + i) % threads_;
      const Range share = split(count, owner, threads_);
      const auto next = counter(round, owner);
      while (next.load(std::memory_order_relaxed) < share.end - share.begin) {
        const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
        if (i >= share.end - share.begin) break;
        f(round % 2 == 0 ? share.begin + i : share.end - 1 - i);
      }
    }
  }

 private:
  static constexpr size_t kLine = 64 / sizeof(int64_t);
  std::atomic_ref<int64_t> counter(int64_t round, int thread) const {
    return std::atomic_ref<int64_t>(memory_[size_t(round % 2 * threads_ + thread) * kLine]);
  }

  int64_t* memory_ = nullptr;
  int threads_ = 1;
};

}  // namespace ridgeline::cpu::simd
