#pragma once

#include <chrono>
#include <ctime>

namespace ridgeline {

// Measures the seconds since its construction, and the share of them for which the calling thread
// had a processor, which is low on a busy machine.
class BusyClock {
 public:
  double seconds() const { return wall_now() - wall_; }
  double share() const { return (cpu_now() - cpu_) / seconds(); }

 private:
  static double wall_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  static double cpu_now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  }

  double wall_ = wall_now(), cpu_ = cpu_now();
};

}  // namespace ridgeline
