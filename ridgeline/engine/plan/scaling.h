#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/engine/config.h"
#include "ridgeline/prof/network.h"

namespace ridgeline::engine {

// A training step over so many ranks: what each computes measured here on its share of the batch,
// what they send from the network's two numbers.
struct ScalingPoint {
  int ranks = 1;
  int64_t samples = 0;                    // the largest share of the batch
  double compute = 0;                     // seconds, measured
  double pcie = 0;                        // gradients to the host and back, of GPUs; measured
  double network = 0;                     // predicted
  double network_bytes = 0;               // that a rank sends
  std::vector<std::string> kernels_used;  // by name
  double step() const { return compute + pcie + network; }
  // Where all communication hides behind the computation.
  double best_step() const { return std::max(compute, pcie + network); }
};

struct Scaling {
  prof::Network network;
  int64_t batch = 0;
  double flops = 0;                  // of a whole step
  std::vector<ScalingPoint> points;  // the first is of one rank
};

Scaling predict_scaling(const Config& config, const std::filesystem::path& data_dir,
                        const std::vector<int>& ranks, const prof::Network& network);

std::string to_text(const Scaling& scaling);
std::string to_json_text(const Scaling& scaling);

}  // namespace ridgeline::engine
