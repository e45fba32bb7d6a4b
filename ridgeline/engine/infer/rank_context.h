#pragma once

#include <filesystem>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/infer/infer.h"
#include "ridgeline/engine/stream/delivery.h"

namespace ridgeline::engine {

// Everything a rank of an inference run has before chunks come: its model, its devices and the
// options of its threads. Collective where there are several ranks.
struct RankContext {
  RankContext(const std::filesystem::path& path, const InferOptions& options, Communicator* ranks);

  // The samples of a launch unless --batch says otherwise.
  int64_t usual_batch() const;
  WorkerOptions worker_options(const InferOptions& options, int64_t batch) const;
  // False: outputs of any size.
  bool probabilities() const { return loaded.config.train.loss != nn::Loss::mse; }
  bool wide() const { return loaded.config.run.precision == Precision::fp64; }

  RunClock clock;
  std::vector<RunConfig> devices;  // one for each
  LoadedModel loaded;
  Delivery delivery;
  RankTimes own;
};

}  // namespace ridgeline::engine
