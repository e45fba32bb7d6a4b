#pragma once

#include <csignal>

namespace ridgeline::engine {

// While an object lives, SIGINT, SIGTERM and SIGHUP (a closed terminal; not under nohup) only set a
// flag, so that a run can save and end. A second SIGINT or SIGTERM ends the process at once; a
// closed terminal may send two signals (from the shell, then from the system). The destructor
// restores the previous handlers. One at a time.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  // Returns the signal that arrived, or 0.
  static int caught();

 private:
  struct sigaction interrupt_ {
  }, terminate_{}, hangup_{};  // the previous handlers
};

}  // namespace ridgeline::engine
