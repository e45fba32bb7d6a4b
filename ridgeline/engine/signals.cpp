#include "ridgeline/engine/signals.h"

#include <atomic>

namespace ridgeline::engine {
namespace {

// A signal handler can only reach a global, and any thread may read it.
std::atomic<int> caught_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler must not wait for a lock");

void note(int signal) { caught_signal = signal; }

void install(int signal, int flags, struct sigaction& before) {
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = flags | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, &before);
}

}  // namespace

SignalGuard::SignalGuard() {
  caught_signal = 0;
  install(SIGINT, int(SA_RESETHAND), interrupt_);
  install(SIGTERM, int(SA_RESETHAND), terminate_);
  sigaction(SIGHUP, nullptr, &hangup_);
  if (hangup_.sa_handler != SIG_IGN) install(SIGHUP, 0, hangup_);
}

SignalGuard::~SignalGuard() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGHUP, &hangup_, nullptr);
}

int SignalGuard::caught() { return caught_signal; }

}  // namespace ridgeline::engine
