#pragma once

#include <csignal>

namespace ridgeline::engine {

// While one lives, SIGINT, SIGTERM and SIGHUP (a terminal that was closed; not under nohup) only
// set a mark, so that a run can save and leave. A second SIGINT or SIGTERM ends the process at
// once, for those who will not wait; a closed terminal may well say so twice (the shell, then the
// system). Then whatever handled them before does so again. One at a time.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  // The signal that came, or 0.
  static int caught();

 private:
  struct sigaction interrupt_ {
  }, terminate_{}, hangup_{};  // what was there before
};

}  // namespace ridgeline::engine
