#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <span>
#include <thread>

#include "ridgeline/serve/job_queue.h"

namespace ridgeline::serve {

// Computes samples: a model on a device. Used by one thread at a time.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual int64_t most() const = 0;   // samples per launch
  virtual int64_t width() const = 0;  // outputs per sample
  // Computes `count` samples, at most most(), and writes [count][width()].
  virtual void run(std::span<const uint8_t> samples, int64_t count, std::span<float> outputs) = 0;
  // The seconds of that launch at the device's limit; 0: unknown.
  virtual double limit_seconds(int64_t /*count*/) const { return 0; }
};

struct BatchOptions {
  // The number of engines, each with a thread. 0: one; or one per connection thread, if these
  // compute themselves.
  int instances = 0;
  int io_threads = 1;
  std::chrono::microseconds max_delay{0};  // how long a job waits for others to share its launch
  JobQueue::Limits queue;
  // A launch shorter than this may run on the thread of the job's connection, which saves two
  // thread switches. 0: never.
  std::chrono::microseconds inline_limit{500};
};

// Engines, and the jobs that wait for them. An engine's thread takes all waiting jobs, up to a
// launch, at a time. If launches are short, connection threads compute their own jobs, each on an
// engine that is mostly its own, without involving another thread.
class Batcher {
 public:
  // `make` is called for each instance, on its thread; the constructor rethrows its exception.
  using MakeEngine = std::function<std::unique_ptr<Engine>(int instance)>;
  Batcher(const MakeEngine& make, const BatchOptions& options,
          std::shared_ptr<ModelMetrics> metrics);
  // No job may be waiting when it is destroyed.
  ~Batcher();

  enum class Accepted {
    no,         // too many wait
    queued,     // a thread will compute it
    by_caller,  // the caller passes it to compute(), soon, with others that have arrived
  };
  Accepted submit(Job& job);
  // Computes jobs of submit() == by_caller on the calling thread, which has this number among the
  // connection threads.
  void compute(std::span<Job*> jobs, size_t thread);

  size_t instances() const { return instances_.size(); }

 private:
  struct Instance {
    std::unique_ptr<Engine> engine;
    std::atomic<bool> busy{false};
    std::vector<uint8_t> samples;  // of several jobs, concatenated
    std::vector<float> outputs;
    std::thread thread;
  };

  void start(const MakeEngine& make);
  void work(Instance& instance);
  Instance* acquire_any(size_t first);
  void launch(Instance& instance, Job* first);
  void launch_together(Instance& instance, Job* first, int64_t count);
  void launch_large(Instance& instance, Job& job);
  void drop(Job* first);
  static void finish(Job* first);
  static bool acquire(Instance& instance) {
    return !instance.busy.load(std::memory_order_relaxed) && !instance.busy.exchange(true);
  }
  static void release(Instance& instance);
  void stop();
  void choose_inline();

  BatchOptions options_;
  std::shared_ptr<ModelMetrics> metrics_;
  JobQueue queue_;
  int64_t most_ = 0;
  bool inlined_ = false;
  std::vector<std::unique_ptr<Instance>> instances_;

  std::mutex mutex_;  // for the start
  std::condition_variable started_;
  size_t ready_ = 0;
  std::exception_ptr failure_;
};

}  // namespace ridgeline::serve
