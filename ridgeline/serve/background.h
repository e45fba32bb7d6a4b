#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace ridgeline::serve {

// A thread for what takes long and no request's thread may do: loading models.
class Background {
 public:
  Background();
  ~Background();  // tasks that have not begun are left undone

  // False when too many wait already. Tasks must not throw.
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
