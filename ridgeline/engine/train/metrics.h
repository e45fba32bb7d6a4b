#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "ridgeline/engine/train/observer.h"

namespace ridgeline::engine {

class RunFolder;

// Writes metrics.jsonl in a run's folder.
std::unique_ptr<TrainObserver> metrics_observer(RunFolder& folder);

// The points that a run has written so far, without damaged lines.
struct MetricPoints {
  std::vector<TrainPoint> train;
  std::vector<EvalPoint> test, validation;
};
MetricPoints read_metrics(const std::filesystem::path& file);

// Writes TensorBoard's event files in a run's folder; `histograms`: of the weights at each
// evaluation.
std::unique_ptr<TrainObserver> tensorboard_observer(const RunFolder& folder, bool histograms);

}  // namespace ridgeline::engine
