#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ridgeline/core/communicator.h"

namespace ridgeline::engine {

// The library that sends messages between ranks, and whether it accepts GPU memory.
struct MpiInfo {
  std::string library;  // name and version
  bool cuda_aware = false;
};

MpiInfo mpi_info_of(Communicator& ranks);
std::string to_string(const MpiInfo& mpi);  // "Open MPI v4.1.4, host-only"
nlohmann::json to_json(const MpiInfo& mpi);

}  // namespace ridgeline::engine
