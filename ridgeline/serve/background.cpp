#include "ridgeline/serve/background.h"

#include <exception>

#include "ridgeline/core/file.h"

namespace ridgeline::serve {

Background::Background() : thread_([this] { work(); }) {}

Background::~Background() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool Background::add(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (stop_ || tasks_.size() >= kMostWaiting) return false;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void Background::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (stop_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    try {
      task();
    } catch (const std::exception& error) {
      write_stderr("ridgeline: warning: models were not looked at or loaded: ");
      write_stderr(error.what());
      write_stderr("\n");
    }
  }
}

}  // namespace ridgeline::serve
