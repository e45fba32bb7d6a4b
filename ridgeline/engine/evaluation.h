#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "ridgeline/engine/head_scores.h"
#include "ridgeline/engine/metric.h"
#include "ridgeline/engine/scores.h"

namespace ridgeline::engine {

// The results of a model on a set.
struct Evaluation {
  double loss = 0;
  double accuracy = 0;  // in [0, 1]; NaN if the targets are values
  int64_t correct = 0, samples = 0;
  int64_t targets = 0;  // labels in total: one per sample, or more for sequences
  Scores scores{};
  std::vector<HeadScores> heads{};  // for a net with several outputs, instead of `scores`
  double seconds = 0;
};

double value_of(const Evaluation& result, Metric metric);  // NaN if it does not apply

// Returns every metric that applies, the loss first.
std::vector<std::pair<Metric, double>> metrics_of(const Evaluation& result);

// Returns the metric to show if only one is shown: accuracy for classes, F1 for labels, MAE for
// values.
Metric main_metric(const Evaluation& result);

}  // namespace ridgeline::engine
