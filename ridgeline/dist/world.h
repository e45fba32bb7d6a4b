#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ridgeline/core/communicator.h"

namespace ridgeline::dist {

class Watch;

// The ranks of this process's run: one, unless a launcher (mpirun, srun) says otherwise. MPI is
// loaded only then.
class World {
 public:
  static std::unique_ptr<World> from_environment();
  ~World();

  Communicator& ranks() { return *ranks_; }

  // Calls `work` and ends MPI with all other ranks. An exception of `work` on one of several ranks
  // ends them all: its message is the last line, the exit code that of its kind. A single process
  // rethrows it.
  int run(const std::function<int(Communicator&)>& work);

 private:
  World() = default;
  std::unique_ptr<Communicator> ranks_;
  std::unique_ptr<Watch> watch_;  // for several ranks
};

}  // namespace ridgeline::dist
