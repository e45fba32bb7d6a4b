#include "ridgeline/engine/signals.h"

#include <gtest/gtest.h>

namespace ridgeline::engine {
namespace {

volatile std::sig_atomic_t seen_by_earlier = 0;

TEST(SignalGuard, NotesASignalAndPutsTheEarlierHandlersBack) {
  struct sigaction mine {
  }, before_int{}, before_term{};
  mine.sa_handler = [](int signal) { seen_by_earlier = signal; };
  sigaction(SIGINT, &mine, &before_int);
  sigaction(SIGTERM, &mine, &before_term);
  {
    const SignalGuard guard;
    EXPECT_EQ(SignalGuard::caught(), 0);
    std::raise(SIGTERM);
    EXPECT_EQ(SignalGuard::caught(), SIGTERM);
    EXPECT_EQ(seen_by_earlier, 0);
  }
  std::raise(SIGTERM);
  EXPECT_EQ(seen_by_earlier, SIGTERM);
  std::raise(SIGINT);
  EXPECT_EQ(seen_by_earlier, SIGINT);
  sigaction(SIGINT, &before_int, nullptr);
  sigaction(SIGTERM, &before_term, nullptr);
}

TEST(SignalGuard, AClosedTerminalIsNotedUnlessItIsToBeIgnored) {
  struct sigaction as_usual {
  }, ignored{}, before{};
  as_usual.sa_handler = SIG_DFL;
  ignored.sa_handler = SIG_IGN;  // nohup
  sigaction(SIGHUP, &as_usual, &before);
  {
    const SignalGuard guard;
    std::raise(SIGHUP);
    std::raise(SIGHUP);  // the shell's, then the system's
    EXPECT_EQ(SignalGuard::caught(), SIGHUP);
  }
  sigaction(SIGHUP, &ignored, nullptr);
  {
    const SignalGuard guard;
    std::raise(SIGHUP);
    EXPECT_EQ(SignalGuard::caught(), 0);
  }
  sigaction(SIGHUP, &before, nullptr);
}

}  // namespace
}  // namespace ridgeline::engine
