#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu::simd {

// Work in pieces for the threads of a region. Each thread begins with a share of its own, the same
// in every round, so that what it reads stays in its cache; then it helps the others with theirs: a
// core that is slow for a while (another machine may have its other half) holds nobody up. Every
// second round goes the other way: what was read last is still in the cache.
//
// Rounds are numbered by the callers, all alike, with a barrier between one and the next.
class Pieces {
 public:
  static size_t counters(int threads) { return size_t(2 * threads) * kLine; }

  Pieces() = default;
  // `memory`: counters(threads) numbers, of a cache line each.
  Pieces(int64_t* memory, int threads) : memory_(memory), threads_(threads) {}

  // By one thread, a barrier before the first round.
  void clear() const { std::fill_n(memory_, counters(threads_), int64_t{0}); }

  // f(piece) for pieces of [0, count): each is done by one thread.
  template <typename F>
  void run(int thread, int64_t round, int64_t count, F&& f) const {
    counter(round + 1, thread)
        .store(0, std::memory_order_relaxed);  // nobody is in the round before
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
