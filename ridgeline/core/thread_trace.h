#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace ridgeline {

// What one thread of a ThreadPool did in one region, in nanoseconds of the steady clock.
struct ThreadSpan {
  int thread = 0;
  int64_t begin = 0, end = 0;
  int64_t waited = 0;  // in barriers, within [begin, end)
};

// While one of these lives, every region of every pool leaves a ThreadSpan for each of its threads.
// For profilers: at most one at a time in a process, made and ended while no region runs. A pool of
// one thread leaves none: its caller's clock says it all.
class ThreadTrace {
 public:
  ThreadTrace();
  ~ThreadTrace();
  ThreadTrace(const ThreadTrace&) = delete;
  ThreadTrace& operator=(const ThreadTrace&) = delete;

  std::vector<ThreadSpan> take();  // those since the last take(), by the time of their end
  void add(const ThreadSpan& span);

 private:
  std::mutex mutex_;
  std::vector<ThreadSpan> spans_;
};

}  // namespace ridgeline
