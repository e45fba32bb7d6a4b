#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ridgeline/dist/transport.h"

namespace ridgeline::dist {

// The launcher's settings in the environment.
struct Launch {
  std::string by;  // "Open MPI", "Slurm", "PMIx", "PMI"
  int rank = 0;
  int size = 0;  // 0: unknown
};

// Returns nothing for a process that was started on its own, or as the only rank.
std::optional<Launch> find_launch();

// Opens libridgeline_mpi.so and initialises MPI. Throws Error(comm) if it is missing, does not load
// or sees another number of ranks than the launcher started.
std::unique_ptr<Transport> open_mpi(const Launch& launch);

}  // namespace ridgeline::dist
