#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ridgeline/core/device_sums.h"
#include "ridgeline/core/shared_segment.h"
#include "ridgeline/dist/shared_sum.h"
#include "ridgeline/dist/transport.h"

namespace ridgeline::dist {

// The time since which this rank's main thread must make progress, in milliseconds of the steady
// clock; 0: it waits for others or is idle. The watchdog's thread reads it.
using Pulse = std::atomic<int64_t>;
int64_t now_ms();

// A command's callbacks for the end of ranks. The watchdog's thread calls them.
struct RankHooks {
  // On the root: a rank was lost. If it returns true, the run continues without it, and no
  // collective may be made any more.
  std::function<bool(int rank, const std::string& name)> lost;
  // Called before the watchdog ends this process, to complete the output.
  std::function<void()> before_exit;
  // Called after that: returns the end of the message about a lost rank, instead of the advice to
  // resume.
  std::function<std::string()> advice;
};

// A Communicator over a Transport: its own thread makes the sums that were started, in order, while
// the caller computes; or at once if the transport's library does not allow threads.
class RankCommunicator final : public Communicator, public SharedSegment, public DeviceSums {
 public:
  explicit RankCommunicator(std::unique_ptr<Transport> transport);
  ~RankCommunicator() override;

  Transport& transport() { return *transport_; }
  const Pulse& pulse() const { return pulse_; }
  void set_hooks(RankHooks hooks);
  RankHooks hooks() const;
  // On the root: ends all ranks with `code`; `message` is the last line that any of them writes.
  [[noreturn]] void end(int code, const std::string& message);
  // Sets how: by the watchdog, which notifies the others, so that they do not report a loss.
  void set_end(std::function<void(int code, const std::string& message)> end);
  // Some ranks were lost and the run continued: no collectives are made any more, not even the
  // last.
  std::atomic<bool>& broken() { return broken_; }

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  int local_rank() const override { return transport_->local_rank(); }
  int local_size() const override { return transport_->local_size(); }

  void barrier() override;
  void broadcast(void* data, size_t bytes, int root) override;
  void all_gather(const void* mine, void* all, size_t bytes) override;
  void all_reduce(const void* from, void* to, int64_t count, DType dtype, Reduce how,
                  DType wire) override;
  void reduce_scatter(const void* from, void* to, int64_t count, DType dtype) override;
  void all_gather_parts(void* data, int64_t count, DType dtype) override;

  Ticket start_all_reduce(const void* from, void* to, int64_t count, DType dtype,
                          DType wire) override;
  Ticket start_reduce_scatter(const void* from, void* to, int64_t count, DType dtype) override;
  bool test(Ticket ticket) override;
  void wait(Ticket ticket) override;

  std::span<std::byte* const> segments() const override { return segments_; }
  size_t segment_bytes() const override { return segment_bytes_; }
  bool reserve(size_t bytes) override;
  void wait_until(const std::function<bool()>& done) override;

  std::string device_refusal() const override { return device_refusal_; }
  void all_reduce_device(const void* from, void* to, int64_t count, DType dtype) override;

  double blocked_seconds() const override { return blocked_; }
  void begin_work() override { pulse_ = now_ms(); }
  void end_work() override { pulse_ = 0; }

 private:
  struct Job {
    const void* from = nullptr;
    void* to = nullptr;
    int64_t count = 0;
    DType dtype = DType::fp32, wire = DType::fp32;
    bool scatter = false;
  };
  class Waiting;

  void do_job(const Job& job);
  void do_all_reduce(const Job& job, Reduce how);
  void do_bf16_sum(const Job& job);
  void do_scatter(const Job& job);
  std::span<const int64_t> parts(int64_t count);
  Ticket start(const Job& job);
  void work();
  void rethrow();

  std::unique_ptr<Transport> transport_;
  std::string device_refusal_;
  Pulse pulse_{0};
  std::atomic<bool> broken_{false};
  mutable std::mutex hooking_;
  RankHooks hooks_;
  std::function<void(int, const std::string&)> end_;
  double blocked_ = 0;

  // Used by one thread at a time: the worker while tickets are open, else the caller.
  std::optional<SharedSum> shared_;   // if all ranks are on one host
  std::vector<std::byte*> segments_;  // if all ranks are on one host
  size_t segment_bytes_ = 0, reserved_ = 0;
  std::vector<int64_t> parts_;
  std::vector<float> wide_;
  std::vector<Bf16> packed_, received_;

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<Job> ring_;  // jobs by ticket, modulo its size
  std::atomic<Ticket> finished_{0};
  Ticket started_ = 0;
  bool stop_ = false;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;  // the worker's, for the next waiter
  std::thread worker_;          // created by the first start
};

}  // namespace ridgeline::dist
