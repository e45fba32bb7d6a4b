#pragma once

#include <memory>

#include "ridgeline/engine/observer.h"

namespace ridgeline::engine {

class RunFolder;

// metrics.jsonl of a run's folder.
std::unique_ptr<TrainObserver> metrics_observer(RunFolder& folder);

// TensorBoard's event files in a run's folder; `histograms`: of the weights at each evaluation.
std::unique_ptr<TrainObserver> tensorboard_observer(const RunFolder& folder, bool histograms);

}  // namespace ridgeline::engine
