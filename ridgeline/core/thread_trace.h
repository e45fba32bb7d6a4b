#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace ridgeline {

// The work of one thread of a ThreadPool in one region, in nanoseconds of the steady clock.
struct ThreadSpan {
  int thread = 0;
  int64_t begin = 0, end = 0;
  int64_t waited = 0;  // in barriers, within [begin, end)
};

// While an object lives, every region of every pool records a ThreadSpan for each of its threads.
// It is for profilers: at most one at a time in a process, made and ended while no region runs. A
// pool of one thread records none, because its caller's clock suffices.
class ThreadTrace {
 public:
  ThreadTrace();
  ~ThreadTrace();
  ThreadTrace(const ThreadTrace&) = delete;
  ThreadTrace& operator=(const ThreadTrace&) = delete;

  std::vector<ThreadSpan> take();  // spans since the last take(), by end time
  void add(const ThreadSpan& span);

 private:
  std::mutex mutex_;
  std::vector<ThreadSpan> spans_;
};

}  // namespace ridgeline
