#include "ridgeline/dist/shared_sum.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/thread_pool.h"

namespace ridgeline::dist {
namespace {

// A microsecond or two: longer than ranks in parallel differ at a rendezvous.
constexpr int kLooks = 200;
constexpr int64_t kBlock = 1024;  // elements summed at a time, in the L1 cache

using Counter = std::atomic<uint64_t>;
static_assert(Counter::is_always_lock_free, "counters are shared between processes");

void rest() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <typename F>
void with_type(DType dtype, const F& f) {
  if (dtype == DType::fp32) return f(float{});
  if (dtype == DType::fp64) return f(double{});
  throw_error(ErrorKind::comm, "shared memory does not add up {} values", name(dtype));
}

}  // namespace

SharedSum::SharedSum(std::vector<std::byte*> segments, int rank)
    : segments_(std::move(segments)), rank_(size_t(rank)) {}

template <typename T>
T* SharedSum::slot(size_t rank) const {
  return reinterpret_cast<T*>(segments_[rank] + kHeadBytes + size_t(slot_) * kSlotBytes);
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

template <typename T>
void SharedSum::sum_slots(int64_t at, int64_t count, T* to) const {
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t part = std::min(kBlock, count - done);
    T sum[kBlock];
    std::copy_n(slot<T>(0) + at + done, part, sum);
    for (size_t r = 1; r < segments_.size(); ++r) {
      const T* other = slot<T>(r) + at + done;
      for (int64_t i = 0; i < part; ++i) sum[i] += other[i];
    }
    std::copy_n(sum, part, to + done);
  }
}

// Sums one slot's worth. Slots alternate: before one is rewritten all ranks have met, after
// fetching its contents.
template <typename T>
void SharedSum::add_up(const T* from, T* to, int64_t count) {
  const int ranks = int(segments_.size());
  std::copy_n(from, count, slot<T>(rank_));
  meet();
  const Range mine = split(count, int(rank_), ranks);
  // No other rank reads this part of this rank's slot before the next rendezvous.
  sum_slots(mine.begin, mine.end - mine.begin, slot<T>(rank_) + mine.begin);
  meet();
  for (int r = 0; r < ranks; ++r) {
    const Range part = split(count, r, ranks);
    std::copy(slot<T>(size_t(r)) + part.begin, slot<T>(size_t(r)) + part.end, to + part.begin);
  }
  slot_ ^= 1;
}

// A slot holds a chunk of each rank's part, so that every rank always has something to sum.
template <typename T>
void SharedSum::add_up_parts(const T* from, T* to, int64_t count) {
  const int ranks = int(segments_.size());
  const int64_t chunk = int64_t(kSlotBytes / sizeof(T)) / ranks;
  const int64_t longest = (count + ranks - 1) / ranks;
  for (int64_t done = 0; done < longest; done += chunk) {
    const auto left = [&](int r) {
      const Range part = split(count, r, ranks);
      return std::clamp<int64_t>(part.end - part.begin - done, 0, chunk);
    };
    for (int r = 0; r < ranks; ++r) {
      std::copy_n(from + split(count, r, ranks).begin + done, left(r), slot<T>(rank_) + r * chunk);
    }
    meet();
    sum_slots(int64_t(rank_) * chunk, left(int(rank_)), to + done);
    slot_ ^= 1;
  }
}

void SharedSum::all_gather_parts(void* data, int64_t count, size_t element_bytes) {
  const int ranks = int(segments_.size());
  auto* bytes = static_cast<std::byte*>(data);
  const auto chunk = int64_t(kSlotBytes / element_bytes);
  const int64_t longest = (count + ranks - 1) / ranks;
  for (int64_t done = 0; done < longest; done += chunk) {
    const auto copy = [&](int r, bool fetch) {
      const Range part = split(count, r, ranks);
      const auto left = std::clamp<int64_t>(part.end - part.begin - done, 0, chunk);
      std::byte* there = slot<std::byte>(size_t(r));
      std::byte* here = bytes + (part.begin + done) * int64_t(element_bytes);
      std::copy_n(fetch ? there : here, left * int64_t(element_bytes), fetch ? here : there);
    };
    copy(int(rank_), false);
    meet();
    for (int r = 0; r < ranks; ++r) {
      if (r != int(rank_)) copy(r, true);
    }
    slot_ ^= 1;
  }
}

void SharedSum::all_reduce(const void* from, void* to, int64_t count, DType dtype) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int64_t kMost = int64_t(kSlotBytes / sizeof(T));
    for (int64_t done = 0; done < count; done += kMost) {
      add_up(static_cast<const T*>(from) + done, static_cast<T*>(to) + done,
             std::min(kMost, count - done));
    }
  });
}

void SharedSum::reduce_scatter(const void* from, void* to, int64_t count, DType dtype) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    add_up_parts(static_cast<const T*>(from), static_cast<T*>(to), count);
  });
}

}  // namespace ridgeline::dist
