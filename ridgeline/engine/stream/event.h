#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ridgeline::engine {

// Wakes the one thread that waits for several things at once.
class Event {
 public:
  void set() {
    {
      const std::scoped_lock lock(mutex_);
      set_ = true;
    }
    wake_.notify_one();
  }
  // Returns when the event was set since the last wait, and resets it.
  void wait() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return set_; });
    set_ = false;
  }
  void wait_for(std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, time, [this] { return set_; });
    set_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool set_ = false;
};

}  // namespace ridgeline::engine
