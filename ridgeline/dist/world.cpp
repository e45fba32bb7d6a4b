#include "ridgeline/dist/world.h"

#include <cstdlib>
#include <new>

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

}  // namespace

std::unique_ptr<World> World::from_environment() {
  std::unique_ptr<World> world(new World);
  const auto launch = find_launch();
  std::unique_ptr<Transport> transport = launch ? open_mpi(*launch) : nullptr;
  if (!transport || transport->size() == 1) {
    world->ranks_ = std::make_unique<SelfCommunicator>();
    return world;
  }
  auto ranks = std::make_unique<RankCommunicator>(std::move(transport));
  world->watch_ = std::make_unique<Watch>(*ranks, watch_options());
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
    watch_->finish();
    watch_.reset();
    ranks.transport().finish();
    return code;
  } catch (const Error& error) {
    watch_->fail(exit_code(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    watch_->fail(exit_code(ErrorKind::device), "out of host memory");
  } catch (const std::exception& error) {
    watch_->fail(1, fmt::format("unexpected: {}", error.what()));
  }
}

}  // namespace ridgeline::dist
