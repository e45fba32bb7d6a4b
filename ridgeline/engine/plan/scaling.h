#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/engine/config.h"
#include "ridgeline/prof/network.h"

namespace ridgeline::engine {

// The prediction for a training step over several ranks: the computation is measured here on a
// rank's share of the batch, the communication follows from the network's two numbers.
struct ScalingPoint {
  int ranks = 1;
  int64_t samples = 0;                    // the largest share of the batch
  double compute = 0;                     // seconds, measured
  double pcie = 0;                        // gradients from a GPU to the host and back; measured
  double network = 0;                     // predicted
  double network_bytes = 0;               // sent by each rank
  std::vector<std::string> kernels_used;  // by name
  double step() const { return compute + pcie + network; }
  // The step's seconds if all communication is hidden behind the computation.
  double best_step() const { return std::max(compute, pcie + network); }
};

struct Scaling {
  prof::Network network;
  int64_t batch = 0;
  double flops = 0;                  // of a whole step
  std::vector<ScalingPoint> points;  // the first is for one rank
};

Scaling predict_scaling(const Config& config, const std::filesystem::path& data_dir,
                        const std::vector<int>& ranks, const prof::Network& network);

std::string to_text(const Scaling& scaling);
std::string to_json_text(const Scaling& scaling);

}  // namespace ridgeline::engine
