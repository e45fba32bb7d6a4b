#include "ridgeline/engine/mpi_info.h"

#include <nlohmann/json.hpp>

#include "ridgeline/core/device_sums.h"
#include "ridgeline/dist/rank_communicator.h"

namespace ridgeline::engine {

MpiInfo mpi_info_of(Communicator& ranks) {
  auto* several = dynamic_cast<dist::RankCommunicator*>(&ranks);
  return {several != nullptr ? several->transport().library() : "one process",
          takes_device_memory(ranks)};
}

std::string to_string(const MpiInfo& mpi) {
  return fmt::format("{}, {}", mpi.library, mpi.cuda_aware ? "CUDA-aware" : "host-only");
}

nlohmann::json to_json(const MpiInfo& mpi) {
  return {{"library", mpi.library}, {"cuda_aware", mpi.cuda_aware}};
}

}  // namespace ridgeline::engine
