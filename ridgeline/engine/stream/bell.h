#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ridgeline::engine {

// Wakes the one thread that waits for several things at once.
class Bell {
 public:
  void ring() {
    {
      const std::scoped_lock lock(mutex_);
      rung_ = true;
    }
    heard_.notify_one();
  }
  // Until it was rung since the last wait.
  void wait() {
    std::unique_lock lock(mutex_);
    heard_.wait(lock, [this] { return rung_; });
    rung_ = false;
  }
  void wait_for(std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    heard_.wait_for(lock, time, [this] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable heard_;
  bool rung_ = false;
};

}  // namespace ridgeline::engine
