#include "ridgeline/engine/signals.h"

#include <csignal>

namespace ridgeline::engine {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t caught_signal = 0;

void note(int signal) { caught_signal = signal; }

void install(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

SignalGuard::SignalGuard() {
  caught_signal = 0;
  install(note, int(SA_RESETHAND) | SA_RESTART);
}

SignalGuard::~SignalGuard() { install(SIG_DFL, 0); }

int SignalGuard::caught() { return caught_signal; }

}  // namespace ridgeline::engine
