#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "ridgeline/engine/head_scores.h"
#include "ridgeline/engine/metric.h"
#include "ridgeline/engine/scores.h"

namespace ridgeline::engine {

// How well a model does on a set.
struct Evaluation {
  double loss = 0;
  double accuracy = 0;  // in [0, 1]; NaN if the targets are values
  int64_t correct = 0, samples = 0;
  int64_t targets = 0;  // labels in all: one a sample, or more for sequences
  Scores scores{};
  std::vector<HeadScores> heads{};  // of a net with several outputs, in place of `scores`
  double seconds = 0;
};

double value_of(const Evaluation& result, Metric metric);  // NaN: it does not fit the targets

// Every metric that fits, the loss first.
std::vector<std::pair<Metric, double>> metrics_of(const Evaluation& result);

// The one to show where there is room for one: accuracy of classes, F1 of labels, MAE of values.
Metric main_metric(const Evaluation& result);

}  // namespace ridgeline::engine
