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
  // What the model is asked for. Throws usage for what it cannot give.
  OutputKind output_kind(const InferOptions& options) const;
  // False: outputs of any size.
  bool probabilities() const {
    return loaded.config.train.loss.kind == nn::LossKind::cross_entropy;
  }
  // Its outputs are numbers to come near to, and no classes.
  bool values() const {
    return loaded.preparation && loaded.preparation->target()->kind != data::TargetKind::classes;
  }
  // Its outputs are labels of 0 and 1, several a sample.
  bool several_labels() const {
    return loaded.preparation && loaded.preparation->target()->kind == data::TargetKind::labels;
  }
  bool wide() const { return loaded.config.run.precision == Precision::fp64; }

  RunClock clock;
  std::vector<RunConfig> devices;  // one for each
  LoadedModel loaded;
  Delivery delivery;
  RankTimes own;
};

}  // namespace ridgeline::engine
