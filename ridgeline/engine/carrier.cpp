#include "ridgeline/engine/carrier.h"

#include <nlohmann/json.hpp>

#include "ridgeline/core/device_sums.h"
#include "ridgeline/dist/rank_communicator.h"

namespace ridgeline::engine {

Carrier carrier_of(Communicator& ranks) {
  auto* several = dynamic_cast<dist::RankCommunicator*>(&ranks);
  return {several != nullptr ? several->transport().library() : "one process",
          takes_device_memory(ranks)};
}

std::string to_string(const Carrier& carrier) {
  return fmt::format("{}, {}", carrier.library, carrier.cuda_aware ? "CUDA-aware" : "host-only");
}

nlohmann::json to_json(const Carrier& carrier) {
  return {{"library", carrier.library}, {"cuda_aware", carrier.cuda_aware}};
}

}  // namespace ridgeline::engine
