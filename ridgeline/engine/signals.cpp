#include "ridgeline/engine/signals.h"

namespace ridgeline::engine {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t caught_signal = 0;

void note(int signal) { caught_signal = signal; }

void install(int signal, struct sigaction& before) {
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = int(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, &before);
}

}  // namespace

SignalGuard::SignalGuard() {
  caught_signal = 0;
  install(SIGINT, interrupt_);
  install(SIGTERM, terminate_);
  install(SIGHUP, hangup_);
  if (hangup_.sa_handler == SIG_IGN) sigaction(SIGHUP, &hangup_, nullptr);
}

SignalGuard::~SignalGuard() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGHUP, &hangup_, nullptr);
}

int SignalGuard::caught() { return caught_signal; }

}  // namespace ridgeline::engine
