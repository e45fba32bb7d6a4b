#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ridgeline/core/communicator.h"

namespace ridgeline::engine {

// What takes messages from rank to rank, and whether it takes memory of GPUs too.
struct Carrier {
  std::string library;  // name and version
  bool cuda_aware = false;
};

Carrier carrier_of(Communicator& ranks);
std::string to_string(const Carrier& carrier);  // "Open MPI v4.1.4, host-only"
nlohmann::json to_json(const Carrier& carrier);

}  // namespace ridgeline::engine
