#pragma once

#include <filesystem>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/infer/infer.h"
#include "ridgeline/engine/stream/delivery.h"

namespace ridgeline::engine {

// Everything a rank of an inference run has before chunks come: its model, its devices, the options
// of its threads. Collective where there are several ranks.
struct Station {
  Station(const std::filesystem::path& path, const InferOptions& options, Communicator* ranks);

  // Rows a launch unless --batch says otherwise.
  int64_t usual_batch() const;
  WorkerOptions worker_options(const InferOptions& options, int64_t batch) const;
  // Else outputs of any size.
  bool probabilities() const { return loaded.config.train.loss != nn::Loss::mse; }
  bool wide() const { return loaded.config.run.precision == Precision::fp64; }

  RunClock clock;
  std::vector<RunConfig> lanes;  // one a device
  LoadedModel loaded;
  Delivery delivery;
  RankTimes own;
};

}  // namespace ridgeline::engine
