#pragma once

namespace ridgeline::engine {

// While one lives, SIGINT and SIGTERM only set a mark, so that a run can save and leave. The second
// of the same kind ends the process at once, for those who will not wait.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  // The signal that came, or 0.
  static int caught();
};

}  // namespace ridgeline::engine
