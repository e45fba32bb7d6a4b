#include "ridgeline/dist/world.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "ridgeline/core/failure.h"
#include "ridgeline/core/file.h"
#include "ridgeline/dist/launcher.h"
#include "ridgeline/dist/self.h"
#include "ridgeline/dist/watch.h"

namespace ridgeline::dist {
namespace {

// Seconds of silence until a rank is given up: $RIDGELINE_WATCH, for debuggers and tests.
Watch::Options watch_options() {
  Watch::Options options;
  if (const char* text = std::getenv("RIDGELINE_WATCH"); text != nullptr && *text != '\0') {
    char* end = nullptr;
    const double seconds = std::strtod(text, &end);
    if (*end != '\0' || !(seconds >= 2) || seconds > 1e6) {
      throw_error(ErrorKind::usage, "RIDGELINE_WATCH={}: give seconds, at least 2", text);
    }
    options.silence = seconds;
  }
  return options;
}

// MPI's own start waits forever for a rank that ended or was stopped before it, and which one is
// unknown at that time. While an object lives, it reports this after a time of silence, and after
// ten such times it ends this rank, whereupon the launcher ends the others. MPI's start may also
// miss the death of the launcher. This rank then exits at once and prints nothing, because its
// output goes through the launcher.
class StartWatch {
 public:
  StartWatch(int rank, const Watch::Options& options)
      : thread_([=](const std::stop_token& stop) { watch(rank, options, stop); }) {}

 private:
  static void watch(int rank, const Watch::Options& options, const std::stop_token& stop) {
    const double silence = options.silence;
    if (waited(silence, options, stop)) return;
    const auto message = [&](double seconds) {
      return fmt::format(
          "rank {} has waited {:g} s for other ranks to start; has one ended, or is it stopped? "
          "RIDGELINE_WATCH=60 is more patient\n",
          rank, seconds);
    };
    write_stderr("ridgeline: warning: " + message(silence));
    if (waited(9 * silence, options, stop)) return;
    write_stderr("ridgeline: " + message(10 * silence));
    std::_Exit(exit_code(ErrorKind::comm));
  }

  // Returns true if `stop` was requested before the time was over.
  static bool waited(double seconds, const Watch::Options& options, const std::stop_token& stop) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    while (Clock::now() < deadline && !stop.stop_requested()) {
      if (::getppid() != options.parent) std::_Exit(exit_code(ErrorKind::comm));
      const std::chrono::duration<double> left = deadline - Clock::now();
      never.wait_for(lock, stop, std::min(left, kLauncherSeconds), [] { return false; });
    }
    return stop.stop_requested();
  }

  static constexpr std::chrono::duration<double> kLauncherSeconds{0.5};
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<World> World::from_environment() {
  std::unique_ptr<World> world(new World);
  const auto launch = find_launch();
  const Watch::Options options = watch_options();
  std::optional<StartWatch> start;  // until the watchdog itself exists
  std::unique_ptr<Transport> transport;
  if (launch) {
    start.emplace(launch->rank, options);
    transport = open_mpi(*launch);
  }
  if (!transport || transport->size() == 1) {
    world->ranks_ = std::make_unique<SelfCommunicator>();
    return world;
  }
  auto ranks = std::make_unique<RankCommunicator>(std::move(transport));
  world->watch_ = std::make_unique<Watch>(*ranks, options);
  world->ranks_ = std::move(ranks);
  return world;
}

World::~World() { watch_.reset(); }

int World::run(const std::function<int(Communicator&)>& work) {
  if (!watch_) return work(*ranks_);
  try {
    const int code = work(*ranks_);
    auto& ranks = static_cast<RankCommunicator&>(*ranks_);
    if (ranks.broken()) watch_->leave(code);
    watch_->finish(code);
    std::fflush(nullptr);  // the watchdog may end this process
    ranks.transport().finish();
    watch_.reset();
    return code;
  } catch (const std::exception& error) {
    const Failure failure = failure_of(error);
    watch_->fail(failure.exit_code, failure.message);
  }
}

}  // namespace ridgeline::dist
