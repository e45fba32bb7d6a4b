#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ridgeline/core/communicator.h"

namespace ridgeline::dist {

class Watch;

// The ranks this process was started with: one, unless a launcher (mpirun, srun) says otherwise.
// MPI is loaded only then.
class World {
 public:
  static std::unique_ptr<World> from_environment();
  ~World();

  Communicator& ranks() { return *ranks_; }

  // Calls `work` and ends MPI with all other ranks. Whatever `work` throws on one of several ranks
  // ends them all: the message is the last line, the exit code that of its kind. Alone, it throws.
  int run(const std::function<int(Communicator&)>& work);

 private:
  World() = default;
  std::unique_ptr<Communicator> ranks_;
  std::unique_ptr<Watch> watch_;  // of several ranks
};

}  // namespace ridgeline::dist
