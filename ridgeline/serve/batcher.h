#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ridgeline/serve/metrics.h"

namespace ridgeline::serve {

using Clock = std::chrono::steady_clock;

// What computes samples: a model on a device. One thread at a time uses it.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual int64_t most() const = 0;   // samples of a launch
  virtual int64_t width() const = 0;  // outputs a sample
  // Computes `count` samples, at most most(), and writes [count][width()].
  virtual void run(std::span<const uint8_t> samples, int64_t count, std::span<float> outputs) = 0;
};

// A request's samples on their way through the queue.
struct Job {
  virtual ~Job() = default;
  // The outputs are there, or the error is. Called once, by the thread that computed.
  virtual void computed() noexcept = 0;

  std::vector<uint8_t> samples;
  int64_t count = 0;
  std::vector<float> outputs;
  std::string error;  // why there are no outputs; empty: there are
  Clock::time_point queued, started;
  int64_t batch = 0;  // samples of its launch
  Job* next = nullptr;
};

struct BatchOptions {
  int instances = 1;                       // engines, each with a thread
  std::chrono::microseconds max_delay{0};  // that a job waits for others to share its launch
  int64_t most_waiting = 1024;             // jobs in the queue
  size_t most_bytes = size_t{256} << 20;   // samples in the queue
  // A launch that takes less than this may be made by the thread that has submitted the job, which
  // saves two switches of threads. 0: never.
  std::chrono::microseconds inline_limit{500};
};

// A bounded queue of jobs, and the threads that take all that wait, up to a launch, at a time.
class Batcher {
 public:
  // `make` is called on each thread of an engine; what it throws, the constructor throws.
  Batcher(const std::function<std::unique_ptr<Engine>()>& make, const BatchOptions& options,
          std::shared_ptr<ModelMetrics> metrics);
  // No job may be waiting any more.
  ~Batcher();

  enum class Accepted {
    no,         // the queue is full
    queued,     // a thread will compute it
    help_soon,  // help() must be called by this thread soon: nobody else may
  };
  Accepted submit(Job& job);
  // Computes what waits on the calling thread, unless other threads are at it.
  void help();

  bool inlined() const { return inlined_; }

 private:
  struct Instance {
    std::unique_ptr<Engine> engine;
    std::atomic<bool> busy{false};
    std::vector<uint8_t> samples;  // of several jobs, side by side
    std::vector<float> outputs;
    std::thread thread;
  };

  void start(size_t index, const std::function<std::unique_ptr<Engine>()>& make);
  void work(Instance& instance);
  bool wait_for_jobs();  // false: stop
  Job* take(int64_t most);
  void compute(Instance& instance, Job* first);
  void compute_together(Instance& instance, Job* first, int64_t count);
  void compute_large(Instance& instance, Job& job);
  void finish(Job* first);
  static bool acquire(Instance& instance) { return !instance.busy.exchange(true); }
  static void release(Instance& instance);
  bool idle();
  void stop();
  void choose_inline();

  BatchOptions options_;
  std::shared_ptr<ModelMetrics> metrics_;
  int64_t most_ = 0;
  bool inlined_ = false;
  std::vector<std::unique_ptr<Instance>> instances_;

  std::mutex mutex_;
  std::condition_variable wake_, started_;
  size_t ready_ = 0;
  std::exception_ptr failure_;
  bool stop_ = false;
  Job *first_ = nullptr, *last_ = nullptr;
  int64_t jobs_ = 0, waiting_samples_ = 0;
  size_t bytes_ = 0;
};

}  // namespace ridgeline::serve
