#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace ridgeline::serve {

// A thread for long work that no request's thread may do: loading models.
class Background {
 public:
  Background();
  ~Background();  // drops tasks that have not begun

  // Returns false if too many tasks already wait. Tasks must not throw.
  bool add(std::function<void()> task);

 private:
  void work();

  static constexpr size_t kMostWaiting = 16;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ridgeline::serve
