#pragma once

#include <filesystem>
#include <vector>

#include "ridgeline/core/communicator.h"
#include "ridgeline/engine/infer/infer.h"
#include "ridgeline/engine/stream/delivery.h"

namespace ridgeline::engine {

// The state of a rank of an inference run before chunks arrive: its model, its devices and the
// options of its threads. Collective if there are several ranks.
struct RankContext {
  RankContext(const std::filesystem::path& path, const InferOptions& options, Communicator* ranks);

  // The samples of a launch, unless --batch sets them.
  int64_t usual_batch() const;
  WorkerOptions worker_options(const InferOptions& options, int64_t batch) const;
  // Returns the kind of output that the options ask for. Throws Error(usage) if the model has no
  // such output.
  OutputKind output_kind(const InferOptions& options) const;
  // False if outputs are of any size.
  bool probabilities() const {
    return loaded.config.train.loss.kind == nn::LossKind::cross_entropy;
  }
  // Whether its outputs are values of a regression, not classes.
  bool values() const {
    return loaded.preparation && loaded.preparation->target()->kind != data::TargetKind::classes;
  }
  // Its outputs are labels of 0 and 1, several a sample.
  bool several_labels() const {
    return loaded.preparation && loaded.preparation->target()->kind == data::TargetKind::labels;
  }
  bool wide() const { return loaded.config.run.precision == Precision::fp64; }

  RunClock clock;
  std::vector<RunConfig> devices;  // one per device
  LoadedModel loaded;
  Delivery delivery;
  RankTimes own;
};

}  // namespace ridgeline::engine
