#pragma once

#include <semaphore.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "ridgeline/serve/metrics.h"

namespace ridgeline::serve {

using Clock = std::chrono::steady_clock;
inline double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// The priority of requests: those of a higher one are computed before all others that wait.
enum class Priority : uint8_t { high, normal, low };
inline constexpr size_t kPriorities = 3;

// A request's samples in the queue.
struct Job {
  virtual ~Job() = default;
  // The outputs or the error are ready. Called once, by the thread that computed.
  virtual void computed() noexcept = 0;

  std::vector<uint8_t> samples;
  int64_t count = 0;
  std::vector<float> outputs;
  std::string error;        // why there are no outputs; empty: there are
  bool overloaded = false;  // the error is that it waited too long
  Priority priority = Priority::normal;
  Clock::time_point queued, started;
  Clock::time_point deadline = Clock::time_point::max();  // it is not wanted after this
  std::atomic<bool> abandoned{false};  // the client has disconnected; set by any thread
  int64_t batch = 0;                   // samples of its launch
  Job* next = nullptr;
};

// Jobs that wait for an engine. Adding one takes no lock and wakes an engine's thread only if all
// of them sleep; engines' threads take jobs out one thread at a time.
class JobQueue {
 public:
  struct Limits {
    int64_t most_waiting = 1024;            // jobs
    size_t most_bytes = size_t{256} << 20;  // of their samples
  };
  JobQueue(const Limits& limits, std::shared_ptr<ModelMetrics> metrics);
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  // Counts a job as waiting; returns false if there are too many.
  bool admit(const Job& job);
  // Counts a job as no longer waiting.
  void leave(const Job& job);
  // Puts an admitted job in, and wakes a thread.
  void push(Job& job);

  // Waits until there are jobs worth a launch: `most` samples, or some that have waited for
  // `max_delay`. Returns false if stop() was called and none is left.
  bool wait(int64_t most, std::chrono::microseconds max_delay);
  struct Taken {
    Job* jobs = nullptr;     // of one launch; a job larger than a launch is alone
    Job* dropped = nullptr;  // that are no longer wanted
  };
  Taken take(int64_t most);
  void stop();

 private:
  struct List {
    Job *first = nullptr, *last = nullptr;
    void add(Job* job);
    Job* pop();
  };
  void sort_in();
  void wake();

  Limits limits_;
  std::shared_ptr<ModelMetrics> metrics_;
  std::array<std::atomic<Job*>, kPriorities> incoming_{};  // newest first
  std::atomic<int64_t> jobs_{0}, samples_{0};              // admitted; pushed
  std::atomic<size_t> bytes_{0};
  std::atomic<bool> stop_{false}, awake_{false};
  sem_t signal_;
  std::mutex taking_;  // among engines' threads only
  std::array<List, kPriorities> waiting_;
};

}  // namespace ridgeline::serve
