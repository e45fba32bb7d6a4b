#pragma once

#include <barrier>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "ridgeline/dist/rank_communicator.h"

namespace ridgeline::dist::testing {

// Ranks that are threads of one process: everything above the Transport, without MPI.
class ThreadGroup {
 public:
  static constexpr size_t kSegment = size_t{2} << 20;

  explicit ThreadGroup(int size)
      : size_(size),
        barrier_(size),
        given_(size_t(size)),
        mail_(size_t(size)),
        shared_(size_t(size) * kLines) {}

  int size() const { return size_; }
  // Shows what each rank gave to all of them while `use` runs.
  void meet(int rank, const void* mine, const std::function<void()>& use) {
    given_[size_t(rank)] = mine;
    barrier_.arrive_and_wait();
    use();
    barrier_.arrive_and_wait();
  }
  // Messages between two ranks: copied when they are sent, so that sends are done at once.
  void post(int from, int to, const void* data, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    const std::scoped_lock lock(mutex_);
    mail_[size_t(to)].push_back({from, {begin, begin + bytes}});
  }
  bool probe(int rank, Transport::Envelope& found) {
    const std::scoped_lock lock(mutex_);
    if (mail_[size_t(rank)].empty()) return false;
    found = {mail_[size_t(rank)].front().first, mail_[size_t(rank)].front().second.size()};
    return true;
  }
  void fetch(int rank, void* data) {
    const std::scoped_lock lock(mutex_);
    const auto& body = mail_[size_t(rank)].front().second;
    if (!body.empty()) std::memcpy(data, body.data(), body.size());
    mail_[size_t(rank)].pop_front();
  }
  std::vector<std::byte*> segments() {
    std::vector<std::byte*> all;
    for (int r = 0; r < size_; ++r) {
      all.push_back(reinterpret_cast<std::byte*>(&shared_[size_t(r) * kLines]));
    }
    return all;
  }
  const std::byte* given(int rank) const {
    return static_cast<const std::byte*>(given_[size_t(rank)]);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64]{};
  };
  static constexpr size_t kLines = (SharedSum::kBytes + kSegment) / sizeof(Line);
  static_assert((SharedSum::kBytes + kSegment) % sizeof(Line) == 0);

  int size_;
  std::barrier<> barrier_;
  std::vector<const void*> given_;
  std::mutex mutex_;
  std::vector<std::deque<std::pair<int, std::vector<std::byte>>>> mail_;  // by receiver
  std::vector<Line> shared_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(ThreadGroup& group, int rank, bool any_thread, bool takes_device_memory = false)
      : group_(group),
        rank_(rank),
        any_thread_(any_thread),
        takes_device_memory_(takes_device_memory) {}

  int64_t sums() const { return sums_; }  // asked for by all_reduce()

  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  int local_rank() const override { return rank_; }
  int local_size() const override { return group_.size(); }
  std::string library() const override { return "threads"; }
  bool any_thread() const override { return any_thread_; }
  // All memory is the host's here.
  bool takes_device_memory() const override { return takes_device_memory_; }
  void barrier() override {
    group_.meet(rank_, nullptr, [] {});
  }
  void broadcast(void* data, size_t bytes, int root) override {
    group_.meet(rank_, data, [&] {
      if (rank_ != root && bytes > 0) std::memcpy(data, group_.given(root), bytes);
    });
  }
  void all_gather(const void* mine, void* all, size_t bytes) override {
    group_.meet(rank_, mine, [&] {
      for (int r = 0; r < size(); ++r) {
        std::memcpy(static_cast<std::byte*>(all) + size_t(r) * bytes, group_.given(r), bytes);
      }
    });
  }
  void all_reduce(const void* from, void* to, int64_t count, DType dtype, Reduce how) override {
    if (how == Reduce::sum) ++sums_;
    with_type(dtype, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> sum;
      group_.meet(rank_, from, [&] { sum = reduced<T>(0, count, how); });
      std::copy(sum.begin(), sum.end(), static_cast<T*>(to));
    });
  }
  void reduce_scatter(const void* from, void* to, std::span<const int64_t> counts,
                      DType dtype) override {
    const int64_t begin = std::accumulate(counts.begin(), counts.begin() + rank_, int64_t{0});
    with_type(dtype, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> sum;
      group_.meet(rank_, from,
                  [&] { sum = reduced<T>(begin, counts[size_t(rank_)], Reduce::sum); });
      std::copy(sum.begin(), sum.end(), static_cast<T*>(to));
    });
  }
  void all_gather_parts(void* data, std::span<const int64_t> counts, size_t width) override {
    group_.meet(rank_, data, [&] {
      size_t at = 0;
      for (int r = 0; r < size(); ++r) {
        const size_t bytes = size_t(counts[size_t(r)]) * width;
        if (r != rank_)
          std::memcpy(static_cast<std::byte*>(data) + at, group_.given(r) + at, bytes);
        at += bytes;
      }
    });
  }
  void exchange_parts(const void* from, void* to, std::span<const int64_t> counts,
                      size_t width) override {
    const int64_t begin = std::accumulate(counts.begin(), counts.begin() + rank_, int64_t{0});
    const size_t bytes = size_t(counts[size_t(rank_)]) * width;
    group_.meet(rank_, from, [&] {
      for (int r = 0; r < size(); ++r) {
        std::memcpy(static_cast<std::byte*>(to) + size_t(r) * bytes,
                    group_.given(r) + size_t(begin) * width, bytes);
      }
    });
  }
  // Half of the tests have no shared memory: the transport computes their sums.
  SharedSegments shared_segments(size_t least, size_t more) override {
    if (!any_thread_) return {};
    return {group_.segments(), least + std::min(more, ThreadGroup::kSegment)};
  }
  Request start_send(int to, const void* data, size_t bytes) override {
    group_.post(rank_, to, data, bytes);
    return 0;
  }
  bool probe(Envelope& found) override { return group_.probe(rank_, found); }
  Request start_receive(const Envelope&, void* data) override {
    group_.fetch(rank_, data);
    return 0;
  }
  bool test(Request) override { return true; }
  void finish() override {}
  void abort(int) noexcept override {}

 private:
  template <typename F>
  static void with_type(DType dtype, F f) {
    if (dtype == DType::fp64) return f(double{});
    if (dtype == DType::fp32) return f(float{});
    if (dtype == DType::int64) return f(int64_t{});
    if (dtype == DType::int32) return f(int32_t{});
    throw_error(ErrorKind::comm, "no such type");
  }
  template <typename T>
  std::vector<T> reduced(int64_t begin, int64_t count, Reduce how) const {
    std::vector<T> all(static_cast<size_t>(count));
    for (int r = 0; r < size(); ++r) {
      const T* values = reinterpret_cast<const T*>(group_.given(r)) + begin;
      for (size_t i = 0; i < all.size(); ++i) {
        if (r == 0) {
          all[i] = values[i];
        } else if (how == Reduce::sum) {
          all[i] += values[i];
        } else {
          all[i] = how == Reduce::max ? std::max(all[i], values[i]) : std::min(all[i], values[i]);
        }
      }
    }
    return all;
  }

  ThreadGroup& group_;
  int rank_;
  bool any_thread_, takes_device_memory_;
  int64_t sums_ = 0;
};

// Calls work(ranks) on `size` threads; an exception in one of them is thrown here (the others must
// not be waiting for it). `on_device`: which ranks' library reports that it accepts GPU memory.
inline void on_ranks(
    int size, const std::function<void(RankCommunicator&)>& work, bool any_thread = true,
    const std::function<bool(int rank)>& on_device = [](int) { return false; }) {
  ThreadGroup group(size);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(size));
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        try {
          RankCommunicator ranks(
              std::make_unique<ThreadTransport>(group, r, any_thread, on_device(r)));
          work(ranks);
        } catch (...) {
          failures[size_t(r)] = std::current_exception();
        }
      });
    }
  }
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace ridgeline::dist::testing
