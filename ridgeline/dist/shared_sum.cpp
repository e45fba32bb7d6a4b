#include "ridgeline/dist/shared_sum.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/thread_pool.h"

namespace ridgeline::dist {
namespace {

// A microsecond or two: longer than ranks that run side by side are apart at a meeting.
constexpr int kLooks = 200;
constexpr int64_t kBlock = 1024;  // elements that are added up at a time, in the L1 cache

using Counter = std::atomic<uint64_t>;
static_assert(Counter::is_always_lock_free, "counters are shared between processes");

void rest() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

SharedSum::SharedSum(std::vector<std::byte*> segments, int rank)
    : segments_(std::move(segments)), rank_(size_t(rank)) {}

template <typename T>
T* SharedSum::slot(size_t rank) const {
  return reinterpret_cast<T*>(segments_[rank] + kHeadBytes + size_t(turn_) * kSlotBytes);
}

void SharedSum::meet() {
  const auto counter = [&](size_t rank) { return reinterpret_cast<Counter*>(segments_[rank]); };
  ++meetings_;
  counter(rank_)->store(meetings_, std::memory_order_release);
  for (size_t r = 0; r < segments_.size(); ++r) {
    for (int looks = 0; counter(r)->load(std::memory_order_acquire) < meetings_; ++looks) {
      looks < kLooks ? rest() : std::this_thread::yield();
    }
  }
}

// One slot's worth. A slot is written again two sums later: by then all ranks have met after they
// had fetched what this sum left in it.
template <typename T>
void SharedSum::add_up(const T* from, T* to, int64_t count) {
  const int ranks = int(segments_.size());
  std::copy_n(from, count, slot<T>(rank_));
  meet();
  const Range mine = split(count, int(rank_), ranks);
  for (int64_t begin = mine.begin; begin < mine.end; begin += kBlock) {
    const int64_t part = std::min(kBlock, mine.end - begin);
    T sum[kBlock];
    std::copy_n(slot<T>(0) + begin, part, sum);
    for (size_t r = 1; r < segments_.size(); ++r) {
      const T* other = slot<T>(r) + begin;
      for (int64_t i = 0; i < part; ++i) sum[i] += other[i];
    }
    std::copy_n(sum, part, slot<T>(rank_) + begin);  // nobody else reads this part before
  }
  meet();
  for (int r = 0; r < ranks; ++r) {
    const Range part = split(count, r, ranks);
    std::copy(slot<T>(size_t(r)) + part.begin, slot<T>(size_t(r)) + part.end, to + part.begin);
  }
  turn_ ^= 1;
}

void SharedSum::all_reduce(const void* from, void* to, int64_t count, DType dtype) {
  dispatch_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) >= 4) {
      constexpr int64_t kMost = int64_t(kSlotBytes / sizeof(T));
      for (int64_t done = 0; done < count; done += kMost) {
        add_up(static_cast<const T*>(from) + done, static_cast<T*>(to) + done,
               std::min(kMost, count - done));
      }
    } else {
      throw_error(ErrorKind::comm, "shared memory does not add up {} values", name(dtype));
    }
  });
}

}  // namespace ridgeline::dist
